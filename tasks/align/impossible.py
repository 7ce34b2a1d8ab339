"""Samples faster than the device can be, whose kernel did not run: refused, and their points say so."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import conform
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.sql import sql

RULE = "impossible_time"
_FAST = """
SELECT s.*, p.least_ns, p.least_bound FROM samples s
JOIN points p USING (run_id, experiment, arm, point_id) WHERE s.duration_ns < p.least_ns
"""
_POINTS = """
WITH fast AS (
    SELECT run_id, experiment, arm, point_id, count(*) AS refused, min(duration_ns) AS fastest_ns
    FROM impossible GROUP BY ALL
), left_over AS (
    SELECT DISTINCT run_id, experiment, arm, point_id FROM kept WHERE duration_ns IS NOT NULL
)
SELECT p.* REPLACE (
    CASE WHEN f.refused IS NOT NULL AND l.point_id IS NULL THEN 'missing' ELSE p.status END AS status,
    CASE WHEN f.refused IS NULL THEN p.status_reason ELSE
         f.refused || ' samples refused: ' || f.fastest_ns || ' ns is less than the ' || p.least_ns ||
         ' ns that ' || p.least_bound || ' allows at least; a kernel did not run' END AS status_reason
)
FROM points p LEFT JOIN fast f USING (run_id, experiment, arm, point_id)
LEFT JOIN left_over l USING (run_id, experiment, arm, point_id)
ORDER BY p.arm, p.linear, p.axis_value, p.point_id
"""


def refuse_impossible(points: pa.Table, samples: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table]:
    """``points`` and ``samples`` without times that cannot be, and the ``quarantine`` rows of those.

    A point of which no sample is left is missing. Points without a least time are taken as they are.
    """
    fast = sql(_FAST, {"samples": samples, "points": points})
    if not fast.num_rows:
        return points, samples, refused_rows(Origin("", "", "", "", "", "", "measured"), "samples", [])
    limits = {row["point_id"]: row["least_ns"] for row in points.select(["point_id", "least_ns"]).to_pylist()}
    least = pa.array([limits.get(point) for point in samples["point_id"].to_pylist()], pa.int64())
    kept = samples.filter(pc.invert(pc.fill_null(pc.less(samples["duration_ns"], least), False)))
    parts = [refused_rows(_origin(row), "samples", [_refusal(row)]) for row in fast.to_pylist()]
    told = sql(_POINTS, {"points": points, "impossible": fast, "kept": kept})
    return conform("points", told), kept, pa.concat_tables(parts)


def _origin(row: dict[str, object]) -> Origin:
    names = ("capture_id", "run_id", "build", "build_id", "experiment", "arm", "evidence", "process_index")
    return Origin(**{name: row[name] for name in names})  # type: ignore[arg-type]


def _refusal(row: dict[str, object]) -> Refusal:
    return Refusal(
        str(row["source_file"]),
        int(str(row["source_line"])),
        RULE,
        f"point {row['point_id']}, sample {row['sample']}: {row['duration_ns']} ns is less than the "
        f"{row['least_ns']} ns that {row['least_bound']} allows at least; a kernel did not run",
        field="duration_ns",
        value=str(row["duration_ns"]),
    )
