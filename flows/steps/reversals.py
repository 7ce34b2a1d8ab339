"""Published comparisons judged again: which rest on a run, and which verdicts are other ones now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tilewatch.infra.archive import Archive
from tilewatch.tasks.sql import sql

_RESTING = """
SELECT DISTINCT baseline, candidate, overrides, max(version) OVER (PARTITION BY baseline, candidate) AS latest
FROM comparisons
WHERE compared_by = 'build' AND (list_has_any(base_run_ids, $1) OR list_has_any(candidate_run_ids, $1))
ORDER BY baseline, candidate, overrides
"""

_CHANGED = """
SELECT n.baseline, n.candidate, o.version AS old_version, n.version AS new_version, n.experiment,
       n.candidate_arm, n.linear, n.axis_value, o.verdict AS old_verdict, n.verdict AS new_verdict,
       o.verdict_reason AS old_reason, n.verdict_reason AS new_reason,
       o.analysis_version AS old_analysis_version, n.analysis_version AS new_analysis_version
FROM pairs p
JOIN comparisons o ON o.baseline = p.baseline AND o.candidate = p.candidate AND o.version = p.latest
JOIN comparisons n ON n.baseline = p.baseline AND n.candidate = p.candidate AND n.version > p.latest
    AND (n.experiment, n.base_arm, n.candidate_arm, n.point_id, n.metric)
      = (o.experiment, o.base_arm, o.candidate_arm, o.point_id, o.metric)
WHERE o.verdict <> n.verdict ORDER BY ALL
"""


@dataclass(frozen=True)
class Pair:
    """A published comparison; ``latest`` is its newest version before it is judged again."""

    baseline: str
    candidate: str
    overrides: tuple[str, ...]
    latest: int


def pairs_of(archive: Archive, runs: Sequence[str]) -> list[Pair]:
    """Comparisons of builds that rest on one of ``runs``."""
    rows = sql(_RESTING, {"comparisons": archive.tables.scan("comparisons")}, [list(runs)]).to_pylist()
    return [Pair(r["baseline"], r["candidate"], tuple(r["overrides"]), r["latest"]) for r in rows]


def changed_verdicts(archive: Archive, pairs: Sequence[Pair]) -> pa.Table:
    """One row a point whose verdict in a version after ``latest`` differs, with both reasons."""
    columns = pa.schema([("baseline", pa.string()), ("candidate", pa.string()), ("latest", pa.int64())])
    asked = pa.Table.from_pylist(
        [{"baseline": p.baseline, "candidate": p.candidate, "latest": p.latest} for p in pairs], columns
    )
    return sql(_CHANGED, {"comparisons": archive.tables.scan("comparisons"), "pairs": asked})
