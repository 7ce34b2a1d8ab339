"""A run of experiment E in one small table, as plain data for terminals and artifacts."""

from __future__ import annotations

import pyarrow as pa

from tilewatch.tasks.analyse.comparison.serving_values import ServingTables, launch_values
from tilewatch.tasks.sql import sql

METRICS = ("ttft_ns", "tpot_ns", "output_token_per_s", "request_per_s")
_SUMMARY = """
WITH counted AS (
    SELECT experiment, arm, min(started_ns) AS started, any_value(weight_format) AS weight_format,
           count(*) FILTER (WHERE role = 'timing' AND status = 'complete') AS launches,
           count(*) FILTER (WHERE role = 'profile' AND status = 'complete') AS profiled,
           count(*) FILTER (WHERE status <> 'complete') AS failed,
           list(failure_stage || ': ' || failure_reason ORDER BY started_ns)
               FILTER (WHERE status <> 'complete') AS failures
    FROM launches GROUP BY experiment, arm
), means AS (
    SELECT experiment, arm, avg(value) FILTER (WHERE metric = 'ttft_ns') AS ttft_ns,
           avg(value) FILTER (WHERE metric = 'tpot_ns') AS tpot_ns,
           avg(value) FILTER (WHERE metric = 'output_token_per_s') AS output_token_per_s,
           avg(value) FILTER (WHERE metric = 'request_per_s') AS request_per_s
    FROM launch_values GROUP BY experiment, arm
)
SELECT c.experiment, c.arm, c.weight_format, c.launches, c.profiled, c.failed, m.ttft_ns, m.tpot_ns,
       m.output_token_per_s, m.request_per_s, c.failures
FROM counted c LEFT JOIN means m USING (experiment, arm) ORDER BY c.experiment, c.started
"""


def launch_summary(tables: ServingTables) -> pa.Table:
    """One row an arm: timed, profiled and failed launches, and the means over its timed launches."""
    return sql(_SUMMARY, {"launches": tables.launches, "launch_values": launch_values(tables)})
