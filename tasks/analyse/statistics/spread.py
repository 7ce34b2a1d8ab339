"""The between-lease A/A spread of archived runs: how far the same build differs from itself another day."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from tilewatch.tasks.analyse.statistics.leases import GROUP, Components, lease_components
from tilewatch.tasks.analyse.statistics.limits import SpreadLimits
from tilewatch.tasks.analyse.statistics.process_values import process_values
from tilewatch.tasks.analyse.tables import AnalysisError, RunTables, join
from tilewatch.tasks.sql import sql

HISTORY_SCHEMA = pa.schema(
    [
        pa.field("device", pa.string(), nullable=False),
        pa.field("method_hash", pa.string(), nullable=False),
        pa.field("experiment", pa.string(), nullable=False),
        pa.field("arm", pa.string(), nullable=False),
        pa.field("point_id", pa.string(), nullable=False),
        pa.field("leases", pa.int64(), nullable=False),
        pa.field("spread_log", pa.float64(), nullable=False),
        pa.field("pooled_spread_log", pa.float64(), nullable=False),
        pa.field("lease_log", pa.float64()),
        pa.field("lease_degrees", pa.float64()),
        pa.field("own_log", pa.float64()),
        pa.field("own_degrees", pa.float64()),
    ]
)
_OF_POINTS = HISTORY_SCHEMA.names[:8]

_LEASE_VALUES = """
SELECT c.build_id, c.device, c.method_hash, v.experiment, v.arm, v.point_id, v.lease_id,
       ln(median(v.value_ns)) AS log_value, count(*) AS processes, var_samp(ln(v.value_ns)) AS scatter
FROM "values" v JOIN captures c USING (capture_id)
WHERE v.role = 'main' AND v.value_ns IS NOT NULL GROUP BY ALL
"""

_SPREAD = """
WITH by_build AS (
    SELECT build_id, device, method_hash, experiment, arm, point_id, count(*) AS leases,
           CASE WHEN count(*) >= $1 THEN 1.4826 * mad(log_value) ELSE stddev_samp(log_value) END AS spread
    FROM lease_values GROUP BY ALL HAVING count(*) >= $2
), by_point AS (
    SELECT device, method_hash, experiment, arm, point_id,
           sum(leases - 1) + 1 AS leases,
           sqrt(sum((leases - 1) * spread * spread) / sum(leases - 1)) AS spread_log
    FROM by_build GROUP BY ALL
)
SELECT *, sqrt(avg(spread_log * spread_log) OVER (PARTITION BY device, method_hash, experiment, arm))
       AS pooled_spread_log
FROM by_point ORDER BY device, method_hash, experiment, arm, point_id
"""


def between_lease_spread(
    runs: Sequence[RunTables], limits: SpreadLimits | None = None, *, without: Collection[str] = ()
) -> pa.Table:
    """One row per (device, method, experiment, arm, point) measured in two or more leases by one build.

    Runs whose id is in ``without`` are left out: a pair must not be judged by a spread that it is part of.

    ``spread_log`` is the standard deviation of ln(point value) between leases (by the median absolute
    deviation from eight leases on), pooled over builds; ``leases`` is one more than its degrees of freedom;
    ``pooled_spread_log`` is the root mean square over the points of the same experiment and arm. That spread
    holds the scatter of the processes too. What two *leases* differ by, without it, is on every row of a
    device and method: ``lease_log`` with the shift that all points of a lease share, ``own_log`` without it
    (see ``leases``). Columns: HISTORY_SCHEMA. Empty where no point has two leases.
    """
    limits = limits or SpreadLimits()
    if not runs:
        return HISTORY_SCHEMA.empty_table()
    tables = join(runs)
    tables = tables.only("run_id", [run for run in tables.distinct("run_id") if run not in without])
    values = process_values(tables.samples, tables.captures)
    captures = tables.captures.select(["capture_id", "build_id", "device", "method_hash"])
    found = sql(_LEASE_VALUES, {"values": values, "captures": captures})
    return _with_leases(_spread(found, limits), lease_components(found, limits))


def history_spread(history: pa.Table, limits: SpreadLimits | None = None) -> pa.Table:
    """The same table from a point history (``point_history.COLUMNS``), where a run stands for a lease."""
    columns = "build_id, device, method_hash, experiment, arm, point_id, run_id AS lease_id"
    values = sql(f"SELECT {columns}, ln(value_ns) AS log_value FROM history", {"history": history})
    return _with_leases(_spread(values, limits or SpreadLimits()), {})


def _spread(lease_values: pa.Table, limits: SpreadLimits) -> pa.Table:
    rules = [limits.robust_from, limits.min_leases]
    return sql(_SPREAD, {"lease_values": lease_values}, rules)


def _with_leases(points: pa.Table, components: Components) -> pa.Table:
    """``points`` with the lease components of its device and method; null where they are not known."""
    of = [components.get(key) for key in zip(*(points[n].to_pylist() for n in GROUP), strict=True)]
    for name in HISTORY_SCHEMA.names[len(_OF_POINTS) :]:
        column = [None if one is None else getattr(one, name) for one in of]
        points = points.append_column(name, pa.array(column, pa.float64(), from_pandas=True))
    return points.cast(HISTORY_SCHEMA)


def moderated(history: pa.Table, limits: SpreadLimits | None = None) -> pa.Table:
    """``history`` with ``degrees`` and ``spread`` for use as a floor.

    A point's own spread rests on few leases and may be near 0 by luck, so it is moderated towards the pooled
    one with the weight of ``prior_degrees`` (the idea of moderated variances, Smyth 2004) and is never taken
    below either itself or that. Degrees stay the point's own: points of one lease share its drift.
    """
    limits = limits or SpreadLimits()
    if missing := sorted(set(_OF_POINTS) - set(history.column_names)):
        raise AnalysisError(f"A/A history lacks {', '.join(missing)}")
    own = history["spread_log"].to_numpy()
    pooled = history["pooled_spread_log"].to_numpy()
    degrees = history["leases"].to_numpy().astype(np.float64) - 1
    mixed = np.sqrt((limits.prior_degrees * pooled**2 + degrees * own**2) / (limits.prior_degrees + degrees))
    return history.append_column("degrees", pa.array(degrees)).append_column(
        "spread", pa.array(np.maximum(own, mixed))
    )
