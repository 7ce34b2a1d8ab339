"""The ledger against the server: the saving it predicts for a decode step, the change of TPOT observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.analyse.savings.ledger_saving import Predicted, predicted_saving
from tilewatch.tasks.analyse.statistics.limits import ANALYSIS_VERSION
from tilewatch.tasks.sql import sql

W8A8 = ("dense", "expert", "quant")
"""Categories that W8A8 changes: the linears, the experts, and the quantisation of their inputs."""

_IDENTITY = (
    "run_id", "build", "build_id", "experiment", "base_arm", "candidate_arm", "load_id", "evidence",
)  # fmt: skip
_SMALL_SHARE = 0.01
"""Part of the base's step under which the change of a category is no reason for anything."""

_PAIRS = """
WITH quantised AS (
    SELECT run_id, experiment, arm, max(quantization) AS quantization, avg(acceptance_length) AS tokens
    FROM launches WHERE status = 'complete' GROUP BY ALL
)
SELECT c.candidate_run_ids[1] AS run_id, c.build, c.candidate_build_id AS build_id, c.experiment, c.base_arm,
       c.candidate_arm, c.load_id, c.evidence, coalesce(q.tokens, 1.0) AS tokens,
       c.candidate_value - c.base_value AS observed, c.base_value * (c.ratio_low - 1) AS low,
       c.base_value * (c.ratio_high - 1) AS high
FROM comparisons c
JOIN quantised q ON q.run_id = c.candidate_run_ids[1] AND q.arm = c.candidate_arm
JOIN quantised b ON b.run_id = c.base_run_ids[1] AND b.arm = c.base_arm
WHERE c.compared_by = 'arm' AND c.metric = 'tpot_ns'
  AND q.quantization IS NOT NULL AND b.quantization IS NULL
ORDER BY ALL
"""

# A verify step with its draft steps gives the tokens of one decode step: all of them together are the step.
_STEPS = """
WITH s AS (
    SELECT arm, capture_id,
           coalesce(max(steps) FILTER (WHERE phase = 'target_verify'),
                    max(steps) FILTER (WHERE phase = 'decode')) AS steps
    FROM costs WHERE phase IN ('decode', 'target_verify', 'draft') GROUP BY ALL
)
SELECT arm, category, sum(exposed_ns) / any_value(t.steps) AS exposed,
       sum(busy_ns) / any_value(t.steps) AS busy
FROM costs JOIN (SELECT arm, sum(steps) AS steps FROM s GROUP BY arm) t USING (arm)
WHERE phase IN ('decode', 'target_verify', 'draft') GROUP BY arm, category
"""


@dataclass(frozen=True)
class _Step:
    """Mean exposed and busy time of a decode step by category, in ns; empty without a profile."""

    exposed: Mapping[str, float]
    busy: Mapping[str, float]

    @property
    def wall(self) -> float | None:
        return sum(self.exposed.values()) if self.exposed else None


def serving_savings(
    launches: pa.Table,
    comparisons: pa.Table,
    costs: pa.Table,
    kernels: pa.Table,
    stage_steps: pa.Table,
    ledger: pa.Table,
) -> pa.Table:
    """A ``serving_savings`` table: one row per compared (unquantised base, quantised candidate, load).

    ``kernels`` and ``stage_steps`` are those of the profiled launches, ``costs`` their ``phase_costs``; the
    rows of ``ledger`` must be of the same build and device. Without a profile or a covering ledger the
    columns that need them are null, and ``reasons`` says so.
    """
    inputs = {"comparisons": comparisons, "launches": launches}
    steps: dict[str, tuple[dict[str, float], dict[str, float]]] = {}
    for row in sql(_STEPS, {"costs": costs}).to_pylist():
        exposed, busy = steps.setdefault(row["arm"], ({}, {}))
        exposed[row["category"]], busy[row["category"]] = row["exposed"], row["busy"]
    rows = []
    for pair in sql(_PAIRS, inputs).to_pylist():
        base, candidate = (_Step(*steps.get(pair[name], ({}, {}))) for name in ("base_arm", "candidate_arm"))
        predicted = predicted_saving(kernels, stage_steps, ledger, pair["candidate_arm"])
        rows.append(_row(pair, base, candidate, predicted))
    return from_rows("serving_savings", rows)


def _row(pair: Mapping[str, Any], base: _Step, candidate: _Step, predicted: Predicted) -> dict[str, Any]:
    observed, low, high = pair["observed"], pair["low"], pair["high"]
    change = None if predicted.saving_ns is None else -predicted.saving_ns / pair["tokens"]
    changes: dict[str, float] = {}
    outside = None
    if base.wall is not None and candidate.wall is not None:
        names = sorted({*base.exposed, *candidate.exposed})
        changes = {n: candidate.exposed.get(n, 0.0) - base.exposed.get(n, 0.0) for n in names}
        if observed is not None:
            outside = observed - sum(changes.values()) / pair["tokens"]
    whole = predicted.covered_share == 1 and change is not None and low is not None
    agrees = low <= change <= high if whole else None
    w8a8_busy = sum(base.busy.get(name, 0.0) for name in W8A8)
    w8a8 = sum(base.exposed.get(name, 0.0) for name in W8A8)
    return {
        **{name: pair[name] for name in _IDENTITY},
        "ledger_run_ids": list(predicted.run_ids),
        "calls_per_step": predicted.calls_per_step,
        "covered_share": predicted.covered_share,
        "predicted_saving_ns": predicted.saving_ns,
        "predicted_tpot_change_ns": change,
        "observed_tpot_change_ns": observed,
        "observed_low_ns": low,
        "observed_high_ns": high,
        "base_step_ns": base.wall,
        "candidate_step_ns": candidate.wall,
        "category_changes": list(changes.items()),
        "outside_step_ns": outside,
        "w8a8_share": w8a8 / base.wall if base.wall else None,
        "exposed_share": w8a8 / w8a8_busy if w8a8_busy else None,
        "agrees": agrees,
        "reasons": [] if agrees else _reasons(pair, base, changes, predicted, outside, w8a8, w8a8_busy),
        "analysis_version": ANALYSIS_VERSION,
    }  # fmt: skip


def _reasons(
    pair: Mapping[str, Any],
    base: _Step,
    changes: Mapping[str, float],
    predicted: Predicted,
    outside: float | None,
    w8a8: float,
    w8a8_busy: float,
) -> list[str]:
    """Why the two differ: what is not known first, then what moved, the largest part first."""
    known = [predicted.gap] if predicted.gap else []
    if base.wall is None or not changes:
        return [*known, "no decode step was profiled in both arms: where the time went is not known"]
    found: list[tuple[float, str]] = []
    saving = predicted.saving_ns
    if saving is not None and saving > w8a8:
        found.append(
            (saving - w8a8, f"share: dense, expert and quant are {w8a8 / base.wall:.0%} of the step")
        )
    if (hidden := w8a8_busy - w8a8) > _SMALL_SHARE * base.wall:
        found.append((hidden, f"overlap: {hidden / w8a8_busy:.0%} of their time hides under other kernels"))
    own = sum(changes.get(name, 0.0) for name in W8A8)
    # Calls without a net move too: what a part of them saves predicts nothing of the whole.
    if saving is not None and predicted.covered_share == 1 and abs(own + saving) > _SMALL_SHARE * base.wall:
        found.append(
            (abs(own + saving), f"the W8A8 operators themselves moved by {_ms(own)}, not {_ms(-saving)}")
        )
    for name, change in changes.items():
        if name not in W8A8 and abs(change) > _SMALL_SHARE * base.wall:
            what = "time without an operator" if name == "idle" else name
            found.append((abs(change), f"other operators moved: {what} by {_ms(change)} a step"))
    if outside is not None and abs(outside) > _SMALL_SHARE * base.wall:
        text = f"outside the decode step: {_ms(outside)} of the change of TPOT"
        found.append(
            (abs(outside), f"{text} (prefill steps in between, the profiler's own cost, the client)")
        )
    return known + [text for _, text in sorted(found, key=lambda part: -part[0])]


def _ms(value_ns: float) -> str:
    return f"{value_ns / 1e6:+.3f} ms"
