"""Approved baselines: derived from archived runs, with a name and a reason, never vacuous."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import conform
from tilewatch.tasks.analyse.comparison.identity import identity
from tilewatch.tasks.analyse.statistics.limits import ANALYSIS_VERSION, ComparisonLimits
from tilewatch.tasks.analyse.statistics.process_values import KEY, process_values
from tilewatch.tasks.analyse.tables import AnalysisError, RunTables
from tilewatch.tasks.sql import sql

VACUOUS_NS = 1.0
"""A value of 0 or 1 passes every candidate: 19 of 77 public nightly baselines are one of the two."""

_DERIVED = """
SELECT v.experiment, v.arm, v.point_id, median(v.value_ns) AS value_ns, count(*) AS processes,
       min(c.device_class) AS device_class, min(c.agent) AS agent, min(c.evidence) AS evidence,
       min(c.method_hash) AS method_hash,
       count(DISTINCT (c.device_class, c.agent, c.evidence, c.method_hash)) AS kinds
FROM "values" v JOIN captures c USING (capture_id)
WHERE v.value_ns IS NOT NULL
GROUP BY ALL ORDER BY ALL
"""

_UNARMED = """
SELECT p.experiment, p.arm, p.point_id, CASE
    WHEN b.value_ns IS NULL THEN 'not armed: no baseline value'
    WHEN NOT b.value_ns > $1 THEN 'not armed: the value ' || b.value_ns || ' passes everything'
    END AS not_armed
FROM (SELECT DISTINCT experiment, arm, point_id FROM points) p
LEFT JOIN baselines b USING (experiment, arm, point_id)
WHERE not_armed IS NOT NULL ORDER BY ALL
"""


def approve(tables: RunTables, *, name: str, approved_by: str, reason: str, approved_ns: int) -> pa.Table:
    """A ``baselines`` table: the median process value of every point of the runs of one build.

    Raises AnalysisError for an empty name, approver or reason; for runs that are void or unfinished; for runs
    of more than one build, device class, agent, evidence or method; for points with fewer processes than a
    verdict needs; and for a value that is vacuous. Points without a value (tuple input) get no baseline.
    """
    texts = {"a name": name, "who approved it": approved_by, "a reason": reason}
    if lacking := [what for what, text in texts.items() if not text.strip()]:
        raise AnalysisError(f"a baseline needs {' and '.join(lacking)}")
    build = identity(tables, name)
    if unusable := _unusable(tables.runs):
        raise AnalysisError(f"baseline {name}: {'; '.join(unusable)}")
    values = process_values(tables.samples, tables.captures, "main")
    rows = sql(_DERIVED, {"values": values, "captures": tables.captures})
    _refuse(rows, name)
    same: dict[str, str | int] = {
        "name": name, "metric": "duration_ns", "build": build.build, "build_id": build.build_id,
        "approved_by": approved_by, "reason": reason, "approved_ns": approved_ns,
        "analysis_version": ANALYSIS_VERSION,
    }  # fmt: skip
    for column, value in same.items():
        rows = rows.append_column(column, pa.repeat(value, rows.num_rows))
    run_ids = pa.repeat(pa.scalar(list(build.run_ids), pa.list_(pa.string())), rows.num_rows)
    return conform("baselines", rows.drop_columns(["kinds"]).append_column("run_ids", run_ids))


def unarmed(baselines: pa.Table, points: pa.Table) -> pa.Table:
    """Points (experiment, arm, point_id, not_armed: why) that no baseline holds.

    ``baselines`` holds one name; an empty result means that all points are armed. A gate over a point listed
    here has failed, whatever was measured.
    """
    return sql(_UNARMED, {"baselines": baselines, "points": points.select(list(KEY))}, [VACUOUS_NS])


def _unusable(runs: pa.Table) -> list[str]:
    rows = runs.select(["run_id", "experiment", "status"]).to_pylist()
    return [
        f"run {r['run_id']} {r['experiment']} is {r['status']}" for r in rows if r["status"] != "complete"
    ]


def _refuse(rows: pa.Table, name: str) -> None:
    fewest = ComparisonLimits().min_processes
    faults = {
        "no point has a value": rows.num_rows == 0,
        "runs of several device classes, agents, evidences or methods": pc.any(
            pc.greater(rows["kinds"], 1)
        ).as_py(),
        f"points with fewer than {fewest} processes": pc.any(pc.less(rows["processes"], fewest)).as_py(),
        "a value of 1 ns or less passes everything": pc.any(
            pc.less_equal(rows["value_ns"], VACUOUS_NS)
        ).as_py(),
    }
    if found := [fault for fault, present in faults.items() if present]:
        raise AnalysisError(f"baseline {name}: {'; '.join(found)}")
