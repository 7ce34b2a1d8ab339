"""From launches to launch values: one number a launch and metric, the unit of every statistic of serving."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.analyse.tables import AnalysisError
from tilewatch.tasks.sql import sql

METRICS = ("ttft_ns", "tpot_ns", "output_token_per_s", "request_per_s", "step_ns")
"""What is compared, in the order of the report; a metric of time ends in ``_ns``, less of it is better."""

TIMING = "timing"
"""Role of the launches whose load is measured; a profiled server is slower and gives no metric."""


@dataclass(frozen=True)
class ServingTables:
    """Contract tables of one or more runs of experiment E."""

    launches: pa.Table
    requests: pa.Table
    serving_metrics: pa.Table

    def only(self, column: str, values: tuple[str, ...]) -> ServingTables:
        """The rows of all three tables where ``column`` (``run_id``, ``build_id`` …) is one of ``values``."""
        wanted = pa.array(values, pa.string())
        kept = {
            f.name: getattr(self, f.name).filter(pc.is_in(getattr(self, f.name)[column], value_set=wanted))
            for f in fields(self)
        }
        return ServingTables(**kept)


VALUE_SCHEMA = pa.schema(
    [
        pa.field(name, kind, nullable=False)
        for name, kind in (
            ("capture_id", pa.string()), ("run_id", pa.string()), ("build", pa.string()),
            ("build_id", pa.string()), ("experiment", pa.string()), ("arm", pa.string()),
            ("load_id", pa.string()), ("lease_id", pa.string()), ("device_class", pa.string()),
            ("method_hash", pa.string()), ("started_ns", pa.int64()), ("metric", pa.string()),
            ("value", pa.float64()),
        )
    ]
)  # fmt: skip
"""Columns of ``launch_values``."""

_VALUES = """
WITH l AS (
    SELECT * FROM launches
    WHERE role = $1 AND status = 'complete' AND coalesce(arm_proved, true)
), detailed AS (
    SELECT capture_id, avg(ttft_ns) FILTER (WHERE ok) AS ttft, avg(tpot_ns) FILTER (WHERE ok) AS tpot
    FROM requests WHERE role = $1 GROUP BY capture_id
), latency AS (
    SELECT capture_id, 'ttft_ns' AS metric, ttft AS value FROM detailed WHERE ttft IS NOT NULL
    UNION ALL SELECT capture_id, 'tpot_ns', tpot FROM detailed WHERE tpot IS NOT NULL
), summed AS (
    SELECT capture_id, metric,
           CASE WHEN statistic = 'mean' THEN sum(value * request_count) / sum(request_count)
                ELSE avg(value) END AS value
    FROM serving_metrics
    WHERE (metric IN ('ttft_ns', 'tpot_ns') AND statistic = 'mean')
       OR (metric IN ('output_token_per_s', 'request_per_s') AND statistic = 'total')
    GROUP BY capture_id, metric, statistic
), step AS (
    SELECT capture_id, 'step_ns' AS metric,
           coalesce(verify_step_ns, mean_step_ns_by_phase['target_verify'], mean_step_ns_by_phase['decode'])
           AS value
    FROM l
), every AS (
    SELECT * FROM latency
    UNION ALL SELECT * FROM summed ANTI JOIN latency USING (capture_id, metric)
    UNION ALL SELECT * FROM step WHERE value IS NOT NULL
)
SELECT capture_id, run_id, build, build_id, experiment, arm, load_id, lease_id, device_class, method_hash,
       started_ns, metric, value
FROM every JOIN l USING (capture_id)
WHERE value > 0
ORDER BY experiment, arm, load_id, metric, value, capture_id
"""


def launch_values(tables: ServingTables) -> pa.Table:
    """One row per (launch, metric), columns VALUE_SCHEMA, sorted by arm, load, metric and value.

    TTFT and TPOT are means over the requests that went well, of all repeats together (from the summaries,
    weighted by their requests, where no request was kept); throughput is the mean over the repeats of the
    total; ``step_ns`` is the server's own mean of a target-verify step, else of a decode step. Only complete
    timing launches whose arm was proved (or could not be checked) have values. Raises AnalysisError for
    metrics of launches that are not in ``launches``.
    """
    known = tables.launches["capture_id"]
    for name in ("requests", "serving_metrics"):
        found = pc.unique(getattr(tables, name)["capture_id"])
        lost = found.filter(pc.invert(pc.is_in(found, value_set=known.combine_chunks())))
        if len(lost):
            raise AnalysisError(f"{name} of unknown launches: {', '.join(lost.to_pylist()[:5])}")
    inputs = {f.name: getattr(tables, f.name) for f in fields(tables)}
    return sql(_VALUES, inputs, [TIMING]).cast(VALUE_SCHEMA)


_SPREAD = """
WITH lease_values AS (
    SELECT build_id, device_class, method_hash, experiment, arm, load_id, metric, lease_id,
           avg(ln(value)) AS log_value
    FROM launch_values GROUP BY ALL
), by_build AS (
    SELECT build_id, device_class, method_hash, experiment, arm, load_id, metric, count(*) AS leases,
           stddev_samp(log_value) AS spread
    FROM lease_values GROUP BY ALL HAVING count(*) > 1
)
SELECT device_class, method_hash, experiment, arm, load_id, metric,
       sum(leases - 1)::BIGINT AS degrees,
       sqrt(sum((leases - 1) * spread * spread) / sum(leases - 1)) AS spread_log
FROM by_build GROUP BY ALL ORDER BY ALL
"""


def between_lease_history(values: pa.Table) -> pa.Table:
    """Between-lease A/A spread from archived ``launch_values`` of many runs.

    One row per (device class, method, experiment, arm, load, metric) that one build measured in two or more
    leases: ``spread_log``, the standard deviation between leases of ln(arm value), pooled over builds, and
    its ``degrees`` of freedom.
    """
    return sql(_SPREAD, {"launch_values": values})
