"""Absolute bars of experiment E: each with its own stated tolerance and launches, and never vacuous."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.analyse.comparison.serving_values import TIMING, ServingTables
from tilewatch.tasks.analyse.statistics.limits import ANALYSIS_VERSION
from tilewatch.tasks.analyse.tables import AnalysisError
from tilewatch.tasks.sql import sql

PASSED, FAILED, NOT_ARMED = "passed", "failed", "not armed"
VACUOUS = (0.0, 1.0)
"""Limits that stand for nothing: 19 of 77 public nightly baselines are one of the two."""


@dataclass(frozen=True)
class Gate:
    """One bar, as the experiment file states it.

    ``tolerance`` is the share of ``limit`` that a launch may miss it by. All launches of an arm count, and
    ``allowed_failures`` of them may miss the bar or fail; at least ``needed_launches`` must have been tried.
    Nothing is tried again until it passes. ``source`` is ``requirement`` or the name of a baseline.
    """

    name: str
    metric: str
    statistic: str
    direction: str
    tolerance: float
    needed_launches: int
    limit: float | None = None
    allowed_failures: int = 0
    source: str = "requirement"

    def __post_init__(self) -> None:
        if self.direction not in ("at_most", "at_least"):
            raise AnalysisError(f"gate {self.name}: direction {self.direction!r} is not at_most or at_least")
        if self.direction != ("at_most" if self.metric.endswith("_ns") else "at_least"):
            raise AnalysisError(f"gate {self.name}: {self.direction} holds no {self.metric}")
        if not 0 <= self.tolerance < 1:
            raise AnalysisError(f"gate {self.name}: tolerance {self.tolerance} is no share from 0 to 1")
        if not 0 <= self.allowed_failures < self.needed_launches:
            raise AnalysisError(
                f"gate {self.name}: {self.allowed_failures} of {self.needed_launches} launches may fail: "
                "it would pass without a good launch"
            )

    @property
    def unarmed(self) -> str | None:
        """Why the gate holds nothing; None where it is armed."""
        if self.limit is None:
            return f"no limit is stated for {self.metric}"
        if not math.isfinite(self.limit) or self.limit < 0 or self.limit in VACUOUS:
            return f"a limit of {self.limit:g} stands for nothing"
        return None

    @property
    def bar(self) -> float | None:
        """Limit with its tolerance; None where the gate is not armed."""
        if self.unarmed or self.limit is None:
            return None
        return self.limit * (1 + self.tolerance if self.direction == "at_most" else 1 - self.tolerance)

    def margin(self, value: float) -> float:
        """Share of the bar between it and ``value``: at least 0 keeps it. Raises AnalysisError if unarmed."""
        if self.bar is None:
            raise AnalysisError(f"gate {self.name} is not armed: {self.unarmed}")
        return (self.bar - value if self.direction == "at_most" else value - self.bar) / self.bar


_VALUES = """
WITH l AS (SELECT * FROM launches WHERE role = $3), v AS (
    SELECT capture_id, sum(value * request_count) / sum(request_count) AS value
    FROM serving_metrics WHERE metric = $1 AND statistic = $2 GROUP BY capture_id
)
SELECT run_id, build, build_id, experiment, arm, load_id, min(evidence) AS evidence,
       list(CASE WHEN status = 'complete' AND coalesce(arm_proved, true) THEN value END
            ORDER BY started_ns, capture_id) AS "values"
FROM l LEFT JOIN v USING (capture_id) GROUP BY ALL ORDER BY ALL
"""


def gate_table(tables: ServingTables, gates: Sequence[Gate]) -> pa.Table:
    """A ``gates`` table: every gate against every arm and load that was launched."""
    inputs = {"launches": tables.launches, "serving_metrics": tables.serving_metrics}
    rows = [
        _held(gate, group)
        for gate in gates
        for group in sql(_VALUES, inputs, [gate.metric, gate.statistic, TIMING]).to_pylist()
    ]
    return from_rows("gates", rows)


def _held(gate: Gate, group: Mapping[str, Any]) -> dict[str, Any]:
    values = [value for value in group["values"] if value is not None]
    broken = len(group["values"]) - len(values)
    margins = [gate.margin(value) for value in values] if gate.bar is not None else []
    missed = sum(margin < 0 for margin in margins)
    status, reason = _status(gate, len(group["values"]), broken, missed)
    return {
        **{name: group[name] for name in group if name != "values"},
        "gate": gate.name,
        "metric": gate.metric,
        "source": gate.source,
        "limit_value": gate.limit,
        "tolerance": gate.tolerance,
        "bar": gate.bar,
        "direction": gate.direction,
        "needed_launches": gate.needed_launches,
        "allowed_failures": gate.allowed_failures,
        "launch_values": values,
        "failed_launches": broken,
        "missed_launches": missed,
        "worst_margin": min(margins, default=None),
        "status": status,
        "status_reason": reason,
        "analysis_version": ANALYSIS_VERSION,
    }


def _status(gate: Gate, launches: int, broken: int, missed: int) -> tuple[str, str]:
    """The order matters: what is not armed has no verdict, and too few launches never pass."""
    if gate.unarmed:
        return NOT_ARMED, gate.unarmed
    said = f"{missed} of {launches} launches missed the bar" + (f", {broken} gave no value" if broken else "")
    if launches < gate.needed_launches:
        return FAILED, f"{launches} launches, the gate needs {gate.needed_launches}; {said}"
    if missed + broken > gate.allowed_failures:
        return FAILED, f"{said}; {gate.allowed_failures} may"
    return PASSED, said
