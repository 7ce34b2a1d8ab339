"""Experiment E: arm against arm, or build against build; one verdict a load and metric."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.analyse.comparison.serving_groups import (
    KEYS,
    OVERRIDABLE,
    PLAN,
    ServingSide,
    declared_weights,
    load_words,
    serving_side,
)
from tilewatch.tasks.analyse.comparison.serving_pairing import (
    Group,
    Slot,
    launch_pairs,
    matching_loads,
    metric_rows,
)
from tilewatch.tasks.analyse.comparison.serving_values import ServingTables
from tilewatch.tasks.analyse.comparison.serving_verdicts import ServingJudged, judge_serving
from tilewatch.tasks.analyse.statistics.limits import ANALYSIS_VERSION, ServingLimits, limits_hash
from tilewatch.tasks.analyse.tables import AnalysisError
from tilewatch.tasks.builds.changes import changed_components

ACCEPTANCE_DIFFERS = "acceptance_differs"
LAUNCHES_FAILED = "launches_failed"
WEIGHTS_DIFFER = "weights"


@dataclass(frozen=True)
class ServingRequest:
    """How to compare; ``components`` are those of the two builds, for the row. ``history`` is the table of
    ``between_lease_history``; ``overrides`` names keys whose difference is to be ignored and recorded."""

    baseline: str
    candidate: str
    limits: ServingLimits = field(default_factory=ServingLimits)
    overrides: Collection[str] = ()
    history: pa.Table | None = None
    base_components: Mapping[str, str] = field(default_factory=dict)
    candidate_components: Mapping[str, str] = field(default_factory=dict)


def compare_serving_arms(
    tables: ServingTables, pairs: Sequence[tuple[str, str]], request: ServingRequest
) -> pa.Table:
    """Each (base arm, candidate arm) of the same build: a ``serving_comparisons`` table.

    Raises AnalysisError where ``tables`` holds more than one build, an arm that none of its launches has, or
    an override is no key.
    """
    found = serving_side(tables)
    known = {arm for _, arm, _ in found.groups}
    if unknown := sorted({arm for pair in pairs for arm in pair} - known):
        raise AnalysisError(f"no launch of arm {', '.join(unknown)}; there are: {', '.join(sorted(known))}")
    experiments = sorted({experiment for experiment, _, _ in found.groups})
    slots = [(e, base, candidate) for e in experiments for base, candidate in pairs]
    return _compare(found, found, slots, request, _build(tables), _build(tables), "arm")


def compare_serving_builds(
    base: ServingTables, candidate: ServingTables, request: ServingRequest
) -> pa.Table:
    """Every arm of the candidate build against the same arm of the base build: ``serving_comparisons``.

    Anything of the build may differ; the plan, the load, the method, the device and the model may not.
    Raises AnalysisError where a side holds no build or more than one, or an override is no key.
    """
    sides = serving_side(base), serving_side(candidate)
    arms = sorted({(e, arm) for one in sides for e, arm, _ in one.groups})
    return _compare(
        *sides, [(e, arm, arm) for e, arm in arms], request, _build(base), _build(candidate), "build"
    )


def _build(tables: ServingTables) -> tuple[str, str]:
    """Label and id of the one build."""
    rows = {(r["build_id"], r["build"]) for r in tables.launches.select(["build_id", "build"]).to_pylist()}
    builds = sorted({build for build, _ in rows})
    if len(builds) != 1:
        raise AnalysisError(f"launches of {len(builds)} builds ({', '.join(builds)}); choose one")
    return max(label for _, label in rows), builds[0]


def _compare(
    base: ServingSide,
    candidate: ServingSide,
    slots: Sequence[Slot],
    request: ServingRequest,
    base_build: tuple[str, str],
    candidate_build: tuple[str, str],
    compared_by: str,
) -> pa.Table:
    if unknown := sorted(set(request.overrides) - set(OVERRIDABLE)):
        known = ", ".join(sorted(OVERRIDABLE))
        raise AnalysisError(f"overrides: unknown key {', '.join(unknown)}; known: {known}")
    keys = KEYS if compared_by == "arm" else (*KEYS, PLAN)
    rows = [
        row
        for slot in slots
        for loads in matching_loads(base, candidate, slot)
        for row in metric_rows(base, candidate, slot, loads, keys, request.overrides)
    ]
    judged = judge_serving(launch_pairs(rows, base, candidate, request.history), request.limits)
    identity = _identity(request, base_build, candidate_build, compared_by, rows)
    return from_rows(
        "serving_comparisons",
        [identity | _row(row, place, judged, request) for place, row in enumerate(rows)],
    )


def _identity(
    request: ServingRequest,
    base_build: tuple[str, str],
    candidate_build: tuple[str, str],
    compared_by: str,
    rows: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    changed = changed_components(request.base_components, request.candidate_components)
    groups = [[row["groups"][side] for row in rows if row["groups"][side]] for side in (0, 1)]
    runs = [sorted({run for group in side for run in group["run_ids"]}) for side in groups]
    hashes = [sorted({(g["plan_hash"], g["method_hash"]) for g in side}) for side in groups]
    body = {
        "compared": [request.baseline, request.candidate, compared_by, base_build[1], candidate_build[1]],
        "measured": [*hashes, *runs],
        "overrides": sorted(request.overrides),
        "analysis": limits_hash(request.limits),
    }
    return {
        "comparison_id": hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16],
        "version": 1,
        "run_id": runs[1][0] if runs[1] else runs[0][0] if runs[0] else None,
        "build": candidate_build[0],
        "compared_by": compared_by,
        "baseline": request.baseline,
        "candidate": request.candidate,
        "base_build_id": base_build[1],
        "candidate_build_id": candidate_build[1],
        "changed_components": changed,
        "cause_separable": len(changed) == 1 if changed else None,
        "base_run_ids": runs[0],
        "candidate_run_ids": runs[1],
        "power": request.limits.power,
        "analysis_version": ANALYSIS_VERSION,
    }


def _row(
    row: Mapping[str, Any], place: int, judged: ServingJudged, request: ServingRequest
) -> dict[str, Any]:
    experiment, base_arm, candidate_arm = row["slot"]
    left, right = row["groups"]
    shown: Group = right or left
    verdict, reason = str(judged.verdict[place]), str(judged.reason[place])
    if row["missing"]:
        verdict, reason = "MISSING", row["missing"]
    elif row["refused"]:
        verdict, reason = "UNDECIDED", f"refused: {row['refused']}"
    return {
        "experiment": experiment,
        "base_arm": base_arm,
        "candidate_arm": candidate_arm,
        "load_id": _joined(*row["loads"]),
        "load": _joined(*(load_words(g) if g else None for g in row["groups"])),
        "metric": row["metric"],
        "evidence": shown["evidence"],
        "method_hash": _joined(*(g["method_hash"] if g else None for g in row["groups"])),
        "base_launches": len(row["values"][0]),
        "candidate_launches": len(row["values"][1]),
        "base_failed": left["failed"] if left else 0,
        "candidate_failed": right["failed"] if right else 0,
        "verdict": verdict,
        "verdict_reason": reason,
        "refused": row["refused"],
        "overrides": row["overrides"],
        "flags": _flags(row, request.limits),
        "forced_differences": _forced(row),
    } | ({} if row["missing"] or row["refused"] else _numbers(row, place, judged))


def _numbers(row: Mapping[str, Any], place: int, judged: ServingJudged) -> dict[str, Any]:
    """Ratio, interval, floor and power of a row; no ratio exists for a pair that is missing or refused."""
    test = judged.test
    means = [float(np.exp(np.mean(np.log(values)))) for values in row["values"]]
    logs = {
        "ratio": test.welch.difference[place],
        "ratio_low": test.low[place],
        "ratio_high": test.high[place],
        "floor_ratio": judged.floor[place],
        "aa_ratio": judged.identical[place],
        "detectable_ratio": judged.detectable[place],
    }
    plain = {"p_value": test.welch.p_value[place], "q_value": judged.q_value[place]}
    extra = int(judged.extra[place])
    return {
        "base_value": means[0],
        "candidate_value": means[1],
        **{name: None if np.isnan(value) else float(np.exp(value)) for name, value in logs.items()},
        **{name: None if np.isnan(value) else float(value) for name, value in plain.items()},
        "floor_reason": judged.floor_reason[place],
        "extra_launches": None if extra < 0 else extra,
    }


def _flags(row: Mapping[str, Any], limits: ServingLimits) -> list[str]:
    """Where acceptance differs TPOT and throughput compare two workloads: the step time is what to judge."""
    groups = [group for group in row["groups"] if group]
    flags = []
    lengths = [group["acceptance_length"] for group in groups]
    if len(groups) == 2 and row["metric"] in ("tpot_ns", "output_token_per_s", "request_per_s"):
        one_sided = (lengths[0] is None) != (lengths[1] is None)
        if one_sided or (
            lengths[0] is not None and abs(np.log(lengths[1] / lengths[0])) > limits.acceptance_tolerance
        ):
            flags.append(
                f"{ACCEPTANCE_DIFFERS}: {_length(lengths[0])} -> {_length(lengths[1])}; judge step_ns"
            )
    if len(groups) == 2 and (weights := declared_weights(*groups)):
        flags.append(f"{WEIGHTS_DIFFER}: {weights}")
    if failed := sum(group["failed"] for group in groups):
        flags.append(f"{LAUNCHES_FAILED}: {failed}")
    return flags


def _length(value: float | None) -> str:
    return "no speculation" if value is None else f"{value:.3f}"


def _forced(row: Mapping[str, Any]) -> list[str]:
    _, *arms = row["slot"]
    return [
        f"{arm}: {text}"
        for arm, group in dict(zip(arms, row["groups"], strict=True)).items() if group
        for text in group["forced"]
    ]  # fmt: skip


def _joined(left: str | None, right: str | None) -> str:
    if left is None or right is None or left == right:
        return right or left or ""
    return f"{left} -> {right}"
