"""The operator calls behind an experiment: every curve of its cases and arms as a call and an axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilewatch.tasks.plan.experiment import Arm, Case, Experiment
from tilewatch.tasks.predict.arithmetic.integers import IntArray, ints
from tilewatch.tasks.predict.calls import (
    ND,
    DynamicQuantCall,
    GroupedMatmulCall,
    OperatorCall,
    QuantMatmulCall,
)
from tilewatch.tasks.predict.environment import CannVersion, Platform
from tilewatch.tasks.predict.errors import OutOfScope
from tilewatch.tasks.predict.questions.boundaries import refine_axis


@dataclass(frozen=True)
class Curve:
    """One swept line of an experiment: ``call`` at ``axis``, with the names it carries."""

    experiment: str
    arm: str
    linear: str
    call: OperatorCall
    axis: str


def curves(experiment: Experiment) -> list[Curve]:
    """Curves of every case and arm that host tiling can be predicted for, the same call only once.

    A quantised linear gives two: its DynamicQuant and its QuantMatmul. Arms whose operator has no predictor
    (BF16 counterparts, tuple input of DynamicQuant) give none.
    """
    found: dict[OperatorCall, Curve] = {}
    for case in experiment.cases:
        for arm in experiment.arms:
            for curve in _of(experiment, case, arm):
                found.setdefault(curve.call, curve)
    return list(found.values())


def axis_list(experiment: Experiment, values: Sequence[int] | None = None) -> IntArray:
    """The experiment's fixed axis values, or ``values``."""
    return ints(list(values or experiment.axis.values))


def refinement(
    platform: Platform, versions: Sequence[CannVersion]
) -> Callable[[Experiment, Case, Arm], Sequence[int]]:
    """A function for the planner: axis values on both sides of every boundary in the axis's range.

    With several versions the union, so that both builds of a comparison sweep the same points. A curve that
    has no rules on ``platform`` gets the ends of the range alone.
    """

    def refine(experiment: Experiment, case: Case, arm: Arm) -> list[int]:
        span = experiment.axis.range or [min(experiment.axis.values), max(experiment.axis.values)]
        chosen: set[int] = set()
        for curve in _of(experiment, case, arm):
            try:
                chosen |= set(refine_axis(curve.call, curve.axis, span[0], span[1], platform, versions))
            except OutOfScope:
                chosen |= set(span)
        return sorted(chosen)

    return refine


def call_of_point(point: dict[str, Any]) -> OperatorCall:
    """The call whose tiling a point measures, from a row of the ``points`` table (or a planned point).

    A quantised linear is its QuantMatmul. Raises OutOfScope for an operation without a predictor.
    """
    operation = point.get("operation") or point.get("operator")
    rows = point.get("m_executed") or point["m"]
    weight_format = point.get("weight_format") or point.get("weight_format_requested") or ND
    if operation == "dynamic_quant":
        return DynamicQuantCall(rows, point["k"], x_dtype=point["dtype_x"])
    if operation in ("quant_linear", "quant_matmul"):
        return QuantMatmulCall(
            rows, point["k"], point["n"], weight_format, transpose_w=bool(point.get("transposed_w"))
        )
    if operation == "grouped_matmul" and point["dtype_w"] == "int8":
        counts = tuple(point.get("group_list") or ())
        return GroupedMatmulCall(
            point.get("allocated_rows") or rows,
            point["k"],
            point["n"],
            point["local_experts"],
            weight_format,
            out_dtype=point["dtype_out"],
            group_list_type=point["group_list_type"],
            tuning_config=point.get("tuning_config") or 0,
            m_e=max(counts, default=point.get("m_e")),
            busy_groups=sum(count > 0 for count in counts) or None,
            group_list=counts or None,
        )
    raise OutOfScope("operation", f"{operation} with {point.get('dtype_w')} weights has no predicted tiling")


def _of(experiment: Experiment, case: Case, arm: Arm) -> Iterator[Curve]:
    n = case.n // experiment.attn_tp if case.split_n_by else case.n
    for call, axis in _calls(experiment, case.k, n, arm):
        yield Curve(experiment.letter, arm.name, case.linear, call, axis)


def _calls(experiment: Experiment, k: int, n: int, arm: Arm) -> Iterator[tuple[OperatorCall, str]]:
    weight_format = arm.weight_format or ND
    if arm.operation in ("dynamic_quant", "quant_linear"):
        yield DynamicQuantCall(1, k, x_dtype=arm.dtype_x), "m"
    if arm.operation in ("quant_linear", "quant_matmul"):
        yield QuantMatmulCall(1, k, n, weight_format), "m"
    if arm.operation != "grouped_matmul" or arm.dtype_w != "int8" or experiment.grouped is None:
        return
    spec = experiment.grouped
    for regime in spec.allocation_regimes:
        template = GroupedMatmulCall(
            spec.padded_rows,
            k,
            n,
            spec.local_experts,
            weight_format,
            out_dtype=arm.dtype_out,
            group_list_type=spec.group_list_type,
            m_e=1,
            exact_rows=regime == "exact",
            hint_m_e=arm.tuning_config == "m_e",
        )
        yield template, "m_e"
