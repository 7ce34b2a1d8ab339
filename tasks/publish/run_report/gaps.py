"""What is not there and why: incomplete points, failed processes, refused rows, failed checks."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tilewatch.tasks.publish.run_report.bands import Row
from tilewatch.tasks.publish.run_report.content import ReportContent
from tilewatch.tasks.sql import sql

_UNMEASURED = """
SELECT experiment, linear, arm, build, axis, status, status_reason, present_processes, planned_processes,
       list(DISTINCT axis_value ORDER BY axis_value) AS axis_values
FROM points WHERE status != 'present' OR status_reason IS NOT NULL
GROUP BY ALL ORDER BY status, experiment, linear, arm, build, present_processes, status_reason
"""

_QUARANTINED = 'SELECT "table", rule, count(*) AS rows FROM quarantine GROUP BY ALL ORDER BY "table", rule'

_FAILED_CHECKS = """
SELECT "table", rule, detail, severity, failed_count FROM checks WHERE NOT success
ORDER BY "table", rule, check_id
"""


@dataclass(frozen=True)
class Gaps:
    """Everything a reader must know is missing; all empty where nothing is."""

    unmeasured: list[Row]
    """Points by (experiment, linear, arm, build, status, reason), with their ``axis_values``."""
    failed_captures: list[Row]
    quarantined: list[Row]
    """Rows in quarantine by table and rule."""
    failed_checks: list[Row]

    @property
    def unsaid(self) -> list[Row]:
        """Failed checks without rows in quarantine: table rules, rules that could not run, warnings."""
        return [c for c in self.failed_checks if not c["failed_count"] or c["severity"] == "warning"]

    def __bool__(self) -> bool:
        return bool(self.unmeasured or self.failed_captures or self.quarantined or self.failed_checks)


def gaps(content: ReportContent) -> Gaps:
    """The gaps of ``content``."""
    return Gaps(
        unmeasured=_rows(_UNMEASURED, "points", content.points),
        failed_captures=[c for c in content.captures.to_pylist() if c["status"] == "failed"],
        quarantined=_rows(_QUARANTINED, "quarantine", content.quarantine),
        failed_checks=_rows(_FAILED_CHECKS, "checks", content.checks),
    )


def _rows(query: str, name: str, table: pa.Table) -> list[Row]:
    found: list[Row] = sql(query, {name: table}).to_pylist()
    return found
