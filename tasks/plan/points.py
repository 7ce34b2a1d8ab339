"""Experiment, preset and agent to points: every combination of axis value and fixed keys, for every arm."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewatch.tasks.plan.choices import Agent
from tilewatch.tasks.plan.experiment import Arm, Case, Experiment, ExperimentError, Preset
from tilewatch.tasks.plan.group_list import group_list
from tilewatch.tasks.plan.ids import point_id

Point = dict[str, Any]
Refine = Callable[[Experiment, Case, Arm], Sequence[int]]
"""Gives the axis values on both sides of every predicted boundary of one curve."""


def arms_of(experiment: Experiment, agent: Agent) -> list[Arm]:
    """Arms that ``agent`` can run, in file order."""
    return [arm for arm in experiment.arms if agent in arm.agents]


def axis_values(
    experiment: Experiment, preset: Preset, axis: str | None = None, refine: Refine | None = None
) -> list[int]:
    """Sorted axis values of ``preset``, or of ``axis``: a named list, or values such as ``7,14,28``.

    Where ``refine`` is given, both sides of every boundary of every curve that the preset keeps are added.
    Raises ExperimentError for an unknown list name, values below 1, or where the file asks for refinement and
    none is given.
    """
    chosen: list[int] | str = preset.axis if axis is None else _stated(experiment, axis)
    if isinstance(chosen, list):
        values = set(chosen)
    else:
        values = set(experiment.axis.named.get(chosen, experiment.axis.values))
    if refine is None and experiment.axis.refine == "predicted" and axis is None:
        raise ExperimentError(
            f"experiment {experiment.letter}: axis.refine is predicted: "
            "say for which CANN versions with --refine"
        )
    if refine is not None:
        for case in kept_cases(experiment, preset):
            for arm in experiment.arms:
                values |= set(refine(experiment, case, arm))
    return sorted(values)


def _stated(experiment: Experiment, axis: str) -> list[int] | str:
    """A named list, or the values themselves; ``predict operating-points`` prints such values."""
    if axis in experiment.axis.named:
        return axis
    if re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", axis):
        return [int(value) for value in axis.split(",")]
    known = ", ".join(experiment.axis.named) or "none"
    raise ExperimentError(
        f"experiment {experiment.letter}: no axis list {axis!r}; known: {known}, or values such as 7,14,28"
    )


def kept_cases(experiment: Experiment, preset: Preset) -> list[Case]:
    """Linears that ``preset`` keeps, in file order."""
    return [c for c in experiment.cases if preset.linears == "all" or c.linear in preset.linears]


def points(
    experiment: Experiment, preset: Preset, agent: Agent, *, values: Sequence[int]
) -> dict[str, list[Point]]:
    """Points by arm name. A point carries every key that identifies it and every field its arm declares."""
    return {
        arm.name: [_for_arm(experiment, arm, base) for base in _bases(experiment, preset, agent, values)]
        for arm in arms_of(experiment, agent)
    }


def _bases(experiment: Experiment, preset: Preset, agent: Agent, values: Sequence[int]) -> Iterator[Point]:
    for case in kept_cases(experiment, preset):
        n = case.n // experiment.attn_tp if case.split_n_by else case.n
        for launch_mode in experiment.launch_modes if agent == "npu" else ("eager",):
            shape = {"linear": case.linear, "k": case.k, "n": n, "launch_mode": launch_mode}
            for value in values:
                common = {"axis": experiment.axis.name, "axis_value": value, **shape}
                if experiment.grouped is None:
                    yield common | _rows(experiment, launch_mode, value) | _NOT_GROUPED
                else:
                    yield from (common | keys for keys in _grouped(experiment, preset, agent, value))


def _rows(experiment: Experiment, launch_mode: str, m: int) -> Point:
    """Requested and executed M: a graph is replayed with the rows of the smallest bucket that holds them."""
    if launch_mode == "eager":
        return {"m": m, "m_executed": m}
    buckets = experiment.graph_buckets
    if m > buckets[-1]:
        raise ExperimentError(f"experiment {experiment.letter}: no graph bucket of {buckets} holds M {m}")
    return {"m": m, "m_executed": buckets[bisect_left(buckets, m)], "graph_buckets": list(buckets)}


_NOT_GROUPED: Point = {
    "allocation_regime": None,
    "allocated_rows": None,
    "local_experts": None,
    "group_list_type": None,
    "group_shape": None,
    "group_list": None,
    "m_e": None,
}


def _grouped(experiment: Experiment, preset: Preset, agent: Agent, m_e: int) -> Iterator[Point]:
    spec = experiment.grouped
    assert spec is not None
    experts = (preset.cpu_local_experts if agent == "cpu" else None) or spec.local_experts
    for shape in spec.group_shapes:
        if preset.group_shapes != "all" and shape not in preset.group_shapes:
            continue
        counts = group_list(shape, m_e, experts, spec.measured_rows)
        for regime in spec.allocation_regimes:
            if preset.allocation_regimes != "all" and regime not in preset.allocation_regimes:
                continue
            rows = spec.padded_rows if regime == "padded" else sum(counts)
            yield {
                "m": sum(counts),
                "m_executed": rows,
                "allocation_regime": regime,
                "allocated_rows": rows,
                "local_experts": experts,
                "group_list_type": spec.group_list_type,
                "group_shape": shape,
                "group_list": counts,
                "m_e": m_e,
            }


def _for_arm(experiment: Experiment, arm: Arm, base: Point) -> Point:
    return {
        "point_id": point_id(experiment.letter, base),
        **base,
        "operation": arm.operation,
        "dtype_x": arm.dtype_x,
        "dtype_w": arm.dtype_w,
        "dtype_out": arm.dtype_out,
        "weight_format_requested": arm.weight_format,
        "transposed_w": False,
        "tuning_config": base["m_e"] if arm.tuning_config == "m_e" else None,
    }
