"""Point values by curve: what the charts draw and the summaries count."""

from __future__ import annotations

import pyarrow as pa

from tilewatch.tasks.analyse.statistics.process_values import process_values
from tilewatch.tasks.sql import sql

_CURVES = """
WITH sources AS (
    SELECT run_id, CASE WHEN (SELECT count(DISTINCT build) FROM runs) > 1 THEN any_value(build)
                        WHEN (SELECT count(DISTINCT run_id) FROM runs) > 1 THEN run_id ELSE '' END AS source
    FROM runs GROUP BY run_id
), measured AS (
    SELECT source, experiment, arm, point_id, median(value_ns) AS value_ns, min(value_ns) AS low_ns,
           max(value_ns) AS high_ns, count(value_ns) AS processes
    FROM process_values JOIN sources USING (run_id) WHERE role = 'main' GROUP BY ALL
), planned AS (
    SELECT source, experiment, linear, k, n, launch_mode, allocation_regime, group_shape, local_experts, arm,
           axis, axis_value, point_id, max(evidence) AS evidence, min(status) AS status,
           min(least_ns) AS least_ns, min(least_bound) AS least_bound
    FROM points JOIN sources USING (run_id) GROUP BY ALL
)
SELECT experiment, concat_ws(' ', linear, 'K' || k, 'N' || n, nullif(launch_mode, 'eager'),
           allocation_regime, group_shape, local_experts || ' experts') AS curve,
       source, arm, axis, axis_value, point_id, evidence, status, value_ns, low_ns, high_ns,
       coalesce(processes, 0) AS processes, least_ns, least_bound, value_ns / least_ns AS distance
FROM planned LEFT JOIN measured USING (source, experiment, arm, point_id)
ORDER BY experiment, curve, source, arm, axis_value, point_id
"""


def curve_points(runs: pa.Table, captures: pa.Table, points: pa.Table, samples: pa.Table) -> pa.Table:
    """One row per (experiment, curve, source, arm, point), sorted along the axis.

    ``value_ns`` is the median over process medians, ``low_ns`` and ``high_ns`` the smallest and largest of
    them; null where nothing was timed. ``curve`` is what a chart holds fixed, in words. ``source`` tells
    builds apart where there are several, else runs, else it is empty. ``distance`` is the value over the
    least time that the device allows; null where that is not known.
    """
    tables = {"runs": runs, "points": points, "process_values": process_values(samples, captures)}
    return sql(_CURVES, tables)
