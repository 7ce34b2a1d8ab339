"""Compare two builds, or two arms of one build: one verdict a point with everything it rests on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import conform
from tilewatch.tasks.analyse.comparison.confirm import confirm
from tilewatch.tasks.analyse.comparison.control import Control, control, control_table
from tilewatch.tasks.analyse.comparison.decision import Mask
from tilewatch.tasks.analyse.comparison.identity import Identity, identity
from tilewatch.tasks.analyse.comparison.keys import check_names
from tilewatch.tasks.analyse.comparison.levels import ProcessDeviations, answers
from tilewatch.tasks.analyse.comparison.pairing import SHAPE, as_pairs, deviations, pair, side
from tilewatch.tasks.analyse.comparison.verdicts import Judged, Pairs, judge
from tilewatch.tasks.analyse.statistics.limits import (
    ANALYSIS_VERSION,
    ComparisonLimits,
    ControlLimits,
    limits_hash,
)
from tilewatch.tasks.analyse.statistics.process_values import Floats
from tilewatch.tasks.analyse.tables import AnalysisError, RunTables, join
from tilewatch.tasks.builds.changes import changed_components
from tilewatch.tasks.sql import sql

_IS_ANCHOR = """
SELECT a.point_id IS NOT NULL AS chosen
FROM (SELECT *, row_number() OVER () AS place FROM rows) r
LEFT JOIN anchors a ON (a.experiment, a.arm, a.point_id) = (r.experiment, r.candidate_arm, r.point_id)
ORDER BY place
"""


_WEIGHTS = """
SELECT coalesce(w.weight, 0.0)::DOUBLE AS weight
FROM (SELECT *, row_number() OVER () AS place FROM rows) r
LEFT JOIN weights w ON (w.experiment, w.arm, w.point_id) = (r.experiment, r.candidate_arm, r.point_id)
ORDER BY place
"""


@dataclass(frozen=True)
class Request:
    """How to compare: names shown, limits, and what the user chose to override.

    ``baseline`` and ``candidate`` are labels or run ids as the user gave them. ``overrides`` names keys whose
    difference is to be ignored; the differences found are recorded on the rows they would have refused.
    ``history`` comes from ``between_lease_spread``. ``anchors`` (see ``anchor_kernels``) are kernels that the
    builds share; ``weights`` (experiment, arm, point_id, weight) is what each point counts in the answers of
    curves, operators, experiments and the build, points that it lacks nothing; all count the same without
    it. What is measured in different leases is divided by their drift.
    """

    baseline: str
    candidate: str
    limits: ComparisonLimits = field(default_factory=ComparisonLimits)
    control_limits: ControlLimits = field(default_factory=ControlLimits)
    overrides: tuple[str, ...] = ()
    history: pa.Table | None = None
    anchors: pa.Table | None = None
    weights: pa.Table | None = None


def compare_builds(
    base: RunTables,
    candidate: RunTables,
    *,
    baseline: str,
    candidate_name: str,
    limits: ComparisonLimits | None = None,
    overrides: Sequence[str] = (),
    history: pa.Table | None = None,
    anchors: pa.Table | None = None,
    weights: pa.Table | None = None,
    second_lease: RunTables | None = None,
) -> pa.Table:
    """Candidate against baseline, point by point and arm by arm: a ``comparisons`` table (version 1).

    Anything in the build identity may differ; every other difference refuses the pair (verdict UNDECIDED,
    ``refused`` names it) unless overridden. Points that one side lacks are MISSING, points with nothing to
    time on either side NOT_APPLICABLE. ``second_lease`` holds
    the candidate measured again (with the baseline too where its build is among the runs) and fills
    ``confirmed``. Raises AnalysisError where a side mixes builds or an override is no key.
    """
    request = Request(
        baseline, candidate_name, limits or ComparisonLimits(), ControlLimits(), tuple(overrides), history,
        anchors, weights,
    )  # fmt: skip
    first = _compare(base, candidate, request, None, ())
    if second_lease is None:
        return first
    base_again, candidate_again = _second(base, candidate, second_lease)
    return confirm(first, _compare(base_again, candidate_again, request, None, ()))


def compare_arms(
    tables: RunTables,
    base_arm: str,
    candidate_arm: str,
    *,
    declared: Sequence[str],
    baseline: str,
    limits: ComparisonLimits | None = None,
    overrides: Sequence[str] = (),
    history: pa.Table | None = None,
) -> pa.Table:
    """Candidate arm against base arm of the same build: a ``comparisons`` table (version 1).

    Only the ``declared`` keys (columns of ``points``) may differ. Where the weight format is declared, both
    sides need the proof that the format asked for was loaded; without it the pair is refused, so no ratio
    exists. Raises AnalysisError where ``tables`` mixes builds or a declared key is none.
    """
    check_names(declared, "declared fields of the arms")
    request = Request(
        baseline, baseline, limits or ComparisonLimits(), ControlLimits(), tuple(overrides), history
    )
    return _compare(tables, tables, request, (base_arm, candidate_arm), tuple(declared))


def _compare(
    base: RunTables,
    candidate: RunTables,
    request: Request,
    arms: tuple[str, str] | None,
    declared: tuple[str, ...],
) -> pa.Table:
    check_names(request.overrides, "overrides")
    identities = identity(base, request.baseline), identity(candidate, request.candidate)
    base_side = side(base)
    candidate_side = base_side if candidate is base else side(candidate)
    rows = pair(
        base_side,
        candidate_side,
        arms=arms,
        history=request.history,
        declared=declared,
        overrides=request.overrides,
        check_format="weight_format" in declared,
    )
    pairs = as_pairs(rows)
    judged = judge(pairs, request.limits, _anchor_rows(rows, request.anchors))
    checked = _control(base, candidate, request)
    processes = deviations(rows, base_side, "base"), deviations(rows, candidate_side, "candidate")
    columns = {
        **_identity_columns(rows, identities, request, arms),
        **{name: rows[name] for name in SHAPE},
        **_statistics(rows, pairs, judged, request.limits.alpha),
        **_verdict_columns(rows, pairs, judged, checked),
        **_level_columns(rows, pairs, judged, processes, request, checked),
    }
    return conform("comparisons", pa.table(columns))


def _second(base: RunTables, candidate: RunTables, again: RunTables) -> tuple[RunTables, RunTables]:
    base_build, candidate_build = base.distinct("build_id"), candidate.distinct("build_id")
    found = again.distinct("build_id")
    if not set(candidate_build) <= set(found):
        raise AnalysisError(
            f"second lease: build {', '.join(candidate_build)} is not among {', '.join(found)}"
        )
    both = base_build != candidate_build and set(base_build) <= set(found)
    return (
        again.only("build_id", base_build) if both else base,
        again.only("build_id", candidate_build),
    )


def _anchor_rows(rows: pa.Table, anchors: pa.Table | None) -> Mask | None:
    """Which rows are anchor kernels; None without any."""
    if anchors is None:
        return None
    asked = {"rows": rows.select(["experiment", "candidate_arm", "point_id"]), "anchors": anchors}
    return np.asarray(sql(_IS_ANCHOR, asked)["chosen"].to_numpy(zero_copy_only=False))


def _control(base: RunTables, candidate: RunTables, request: Request) -> Control:
    same = base.distinct("run_id") == candidate.distinct("run_id")
    every = base if same else join([base, candidate])
    table = control_table(every, request.limits)
    return control(table, request.control_limits, min_processes=request.limits.min_processes)


def _identity_columns(
    rows: pa.Table, identities: tuple[Identity, Identity], request: Request, arms: tuple[str, str] | None
) -> dict[str, pa.Array]:
    base, candidate = identities
    changed = changed_components(base.components, candidate.components)
    method = pc.coalesce(rows["c_method"], rows["b_method"], pa.scalar("unknown"))
    differs = pc.fill_null(pc.not_equal(rows["b_method"], rows["c_method"]), False)
    both = pc.binary_join_element_wise(rows["b_method"], rows["c_method"], " -> ")
    count = rows.num_rows
    text: dict[str, str | int] = {
        "comparison_id": comparison_id(base, candidate, request, arms),
        "version": 1,
        "build": candidate.build,
        "compared_by": "arm" if arms else "build",
        "baseline": request.baseline,
        "candidate": request.candidate,
        "base_build_id": base.build_id,
        "candidate_build_id": candidate.build_id,
        "metric": "duration_ns",
        "analysis_version": ANALYSIS_VERSION,
    }
    return {
        **{name: pa.repeat(value, count) for name, value in text.items()},
        "changed_components": _lists(changed, count),
        "cause_separable": pa.repeat(pa.scalar(len(changed) == 1 if changed else None, pa.bool_()), count),
        "base_run_ids": _lists(base.run_ids, count),
        "candidate_run_ids": _lists(candidate.run_ids, count),
        "method_hash": pc.if_else(differs, both, method),
        **{name: rows[name] for name in ("experiment", "base_arm", "candidate_arm", "point_id", "evidence")},
    }


def comparison_id(
    base: Identity, candidate: Identity, request: Request, arms: tuple[str, str] | None = None
) -> str:
    """16 hex digits over baseline, candidate, plan and method hashes, arms, analysis version and limits."""
    body = {
        "baseline": request.baseline,
        "candidate": request.candidate,
        "plan_hashes": [base.plan_hashes, candidate.plan_hashes],
        "method_hashes": [base.method_hashes, candidate.method_hashes],
        "arms": arms,
        "analysis": limits_hash(request.limits, request.control_limits),
    }
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def _statistics(rows: pa.Table, pairs: Pairs, judged: Judged, alpha: float) -> dict[str, pa.Array]:
    low, high = judged.test.interval(alpha)
    shown = ~pairs.excluded

    def number(values: Floats) -> pa.Array:
        return pa.array(np.where(shown, values, np.nan), from_pandas=True)

    return {
        "base_ns": _centre(pairs.mean_log[0]),
        "candidate_ns": _centre(pairs.mean_log[1]),
        "ratio": number(np.exp(judged.test.difference)),
        "anchor_ratio": _anchor_ratio(pairs, judged),
        "ratio_low": number(low),
        "ratio_high": number(high),
        "p_value": number(judged.test.p_value),
        "q_value": number(judged.q_value),
        "base_processes": pa.array(pairs.processes[0]),
        "candidate_processes": pa.array(pairs.processes[1]),
        "floor_ratio": pa.array(np.exp(judged.floor_log)),
        "floor_reason": pa.array(judged.floor_reason, pa.string()),
        "between_leases": rows["between"],
        "base_operator": rows["b_operator"],
        "candidate_operator": rows["c_operator"],
    }


def _centre(mean_log: Floats) -> pa.Array:
    return pa.array(np.exp(mean_log), from_pandas=True)


def _anchor_ratio(pairs: Pairs, judged: Judged) -> pa.Array:
    if judged.drift is None:
        return pa.nulls(len(pairs.between), pa.float64())
    return pa.array(np.full(len(pairs.between), np.exp(judged.drift.log)), mask=~pairs.between)


def _level_columns(
    rows: pa.Table,
    pairs: Pairs,
    judged: Judged,
    processes: tuple[ProcessDeviations, ProcessDeviations],
    request: Request,
    checked: Control,
) -> dict[str, pa.Array]:
    """The answer of each level on every row; none in a void sweep."""
    weights = _weights(rows, request.weights)
    columns = {}
    for level, found in answers(rows, pairs, judged, processes, request.limits, weights).items():
        for name in ("ratio", "low", "high", "worst"):
            columns[f"{level}_{name}"] = pa.array(getattr(found, name), from_pandas=True)
        columns[f"{level}_verdict"] = pa.array([word or None for word in found.verdict], pa.string())
    if checked.status == "void":
        return {name: pa.nulls(rows.num_rows, column.type) for name, column in columns.items()}
    return columns


def _weights(rows: pa.Table, weights: pa.Table | None) -> Floats | None:
    """Weight of each row; 0 where the operating point does not call it."""
    if weights is None:
        return None
    asked = {"rows": rows.select(["experiment", "candidate_arm", "point_id"]), "weights": weights}
    return np.asarray(sql(_WEIGHTS, asked)["weight"].to_numpy())


def _verdict_columns(rows: pa.Table, pairs: Pairs, judged: Judged, checked: Control) -> dict[str, pa.Array]:
    refused, missing, nothing = rows["refused"], rows["missing"], rows["nothing_to_time"]
    void = checked.status == "void"
    decided = pa.array(judged.verdict, pa.string())
    decided = pc.if_else(pa.scalar(void), pa.scalar("UNDECIDED"), decided)
    is_missing = pc.and_(missing.is_valid(), nothing.is_null())
    verdict = pc.if_else(is_missing, "MISSING", pc.if_else(refused.is_valid(), "UNDECIDED", decided))
    verdict = pc.if_else(nothing.is_valid(), "NOT_APPLICABLE", verdict)
    reason = pa.array(judged.reason, pa.string())
    if void:
        reason = pc.binary_join_element_wise(
            f"the sweep is void: {checked.false_pairs} of {checked.pairs} A/A control pairs called different",
            reason, "; ",
        )  # fmt: skip
    reason = pc.if_else(refused.is_valid(), pc.binary_join_element_wise("refused", refused, ": "), reason)
    reason = pc.if_else(is_missing, missing, reason)
    reason = pc.if_else(
        nothing.is_valid(), pc.binary_join_element_wise("nothing to time", nothing, ": "), reason
    )
    extra = pa.array(judged.extra_processes, mask=(judged.extra_processes < 0) | pairs.excluded | void)
    return {
        "verdict": verdict,
        "verdict_reason": reason,
        "extra_processes": extra,
        "confirmed": pa.nulls(rows.num_rows, pa.bool_()),
        "refused": refused,
        "overrides": rows["overridden"],
        "control_status": pa.repeat(checked.status, rows.num_rows),
        "control_pairs": pa.repeat(checked.pairs, rows.num_rows),
        "control_false_rate": pa.repeat(pa.scalar(checked.false_rate, pa.float64()), rows.num_rows),
    }


def _lists(values: Sequence[str], count: int) -> pa.Array:
    return pa.repeat(pa.scalar(list(values), pa.list_(pa.string())), count)
