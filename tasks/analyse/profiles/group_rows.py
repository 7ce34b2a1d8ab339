"""One row a unit of kernel groups: what it costs on both sides, its verdict and the cause; worst first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewatch.tasks.analyse.profiles.equal import Differences
from tilewatch.tasks.analyse.profiles.judged_rows import refusal, verdict_columns
from tilewatch.tasks.analyse.profiles.match import NEW, REPLACED, VANISHED, Unit
from tilewatch.tasks.analyse.profiles.units import Program, cause
from tilewatch.tasks.analyse.profiles.values import Floats
from tilewatch.tasks.analyse.profiles.verdicts import CALLS, Level, judged, values
from tilewatch.tasks.analyse.statistics.limits import ComparisonLimits

_ONE_SIDED = {NEW: "only the candidate runs it", VANISHED: "only the base runs it"}


def group_rows(
    units: Sequence[Unit],
    base: Program,
    candidate: Program,
    level: Level,
    differ: Differences,
    limits: ComparisonLimits,
) -> list[dict[str, Any]]:
    """Rows of all units: computing first, by what they add to the step; communication is judged apart.

    Beside the columns of the contract a row holds its ``unit``.
    """
    apart = [_communicates(unit, base, candidate) for unit in units]
    rows: list[dict[str, Any]] = []
    for communicates in (False, True):
        chosen = [unit for unit, is_apart in zip(units, apart, strict=True) if is_apart == communicates]
        found = _judged_rows(chosen, base, candidate, level, limits)
        refused = _refused(differ, communicates)
        for row in found:
            row["communicates"] = communicates
            if refused and row["verdict"] != "MISSING":
                row |= refusal(refused)
        rows += sorted(found, key=lambda row: -(row["difference_ns"] or 0.0))
    return rows


def _communicates(unit: Unit, base: Program, candidate: Program) -> bool:
    groups = [base.groups[i] for i in unit.base] + [candidate.groups[j] for j in unit.candidate]
    return all(group["communicates"] for group in groups)


def _refused(differ: Differences, communicates: bool) -> str:
    """Communication also needs equal parallel groups; a single kernel that computes does not."""
    return "; ".join((*differ.refused, *differ.parallel) if communicates else differ.refused)


def _judged_rows(
    units: Sequence[Unit], base: Program, candidate: Program, level: Level, limits: ComparisonLimits
) -> list[dict[str, Any]]:
    if not units:
        return []
    sides = (base, candidate)
    replicates = [values(units, side, sides[side], level.name) for side in (0, 1)]
    calls = [_call_ns(units, side, sides[side]) for side in (0, 1)]
    excluded = [not (unit.base and unit.candidate) or _by_calls_only(unit, level) for unit in units]
    found = judged(replicates[0], replicates[1], (calls[0], calls[1]), excluded, level, limits)
    interval = found.test.interval(limits.alpha)
    rows = []
    for index, unit in enumerate(units):
        counts = (len(replicates[0][index]), len(replicates[1][index]))
        row = _described(unit, base, candidate, (calls[0][index], calls[1][index]))
        row |= verdict_columns(found, index, level, counts, interval)
        if not (unit.base and unit.candidate):
            row |= {"verdict": "MISSING", "verdict_reason": _ONE_SIDED[unit.change], "ratio": None}
        elif _by_calls_only(unit, level):
            row |= {"verdict_reason": "other kernels do this work: steps could be compared, calls not"}
        rows.append(row)
    return rows


def _by_calls_only(unit: Unit, level: Level) -> bool:
    return level.name == CALLS and (unit.change == REPLACED or len(unit.base) != len(unit.candidate))


def _call_ns(units: Sequence[Unit], side: int, program: Program) -> Floats:
    """Mean duration of one call of every unit, ns; NaN where the side has none."""
    found = []
    for unit in units:
        groups = list(unit.base if side == 0 else unit.candidate)
        calls = program.calls[groups].sum()
        found.append(program.step_ns[groups].sum() / calls if calls else np.nan)
    return np.array(found)


def _described(unit: Unit, base: Program, candidate: Program, call_ns: tuple[float, float]) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": "group", "change": unit.change, "unit": unit}
    names, costliest = [], None
    for side, program, groups, call in (
        ("base", base, list(unit.base), call_ns[0]),
        ("candidate", candidate, list(unit.candidate), call_ns[1]),
    ):
        if not groups:
            continue
        known = [program.groups[i] for i in groups]
        top = known[int(np.argmax(program.step_ns[groups]))]
        costliest = costliest or top
        names.append(" + ".join(dict.fromkeys(group["op"] for group in known)))
        row |= {
            f"{side}_op_types": list(dict.fromkeys(group["op"] for group in known)),
            f"{side}_task_types": sorted({g["task_type"] for g in known if g["task_type"]}),
            f"{side}_cores": sorted({g["block_dim"] for g in known if g["block_dim"]}),
            f"{side}_input_shapes": top["input_shapes"],
            f"{side}_input_dtypes": top["input_dtypes"],
            f"{side}_input_formats": top["input_formats"],
            f"{side}_calls": float(program.calls[groups].sum()),
            f"{side}_call_ns": float(call),
            **_step_times(side, program, groups),
        }
    row["name"] = " → ".join(dict.fromkeys(names))
    row["category"] = costliest["category"] if costliest else None
    row["cause"] = cause(unit, base, candidate) or None
    row["difference_ns"] = _difference(row)
    return row


def _step_times(side: str, program: Program, groups: list[int]) -> dict[str, Any]:
    if not program.has_steps:
        return {}
    wall = float(np.concatenate([profile.wall for profile in program.profiles]).mean())
    exposed = float(program.exposed_ns[groups].sum())
    return {
        f"{side}_step_ns": float(program.step_ns[groups].sum()),
        f"{side}_exposed_ns": exposed,
        f"{side}_share": exposed / wall if wall else None,
    }


def _difference(row: dict[str, Any]) -> float:
    """Time a step, candidate minus base; of a call where a side has no steps. A missing side counts as 0."""
    if row.get("base_step_ns") is None and row.get("candidate_step_ns") is None:
        both = row.get("base_call_ns"), row.get("candidate_call_ns")
        return both[1] - both[0] if both[0] is not None and both[1] is not None else 0.0
    return float((row.get("candidate_step_ns") or 0.0) - (row.get("base_step_ns") or 0.0))
