"""The four experiments' own tables: what each of them asks, answered a row a point, with its evidence."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import schema
from tilewatch.tasks.analyse.comparison.compare import compare_arms
from tilewatch.tasks.analyse.statistics.process_values import point_statistics, process_values
from tilewatch.tasks.analyse.tables import RunTables
from tilewatch.tasks.sql import sql

PREDICTED = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("build", "experiment", "arm", "point_id")),
        pa.field("used_core_num", pa.int64()),
        pa.field("rounds", pa.int64()),
        pa.field("vector_cores", pa.int64()),
    ]
)
"""Predicted tiling beside points, as the tables here read it: one row per (build, experiment, arm, point)."""

FORMAT_ARMS = ("nd", "nz")
SERVING_ARMS = ("w8a8_nd", "w8a8_nz")
"""Arms of experiment E that differ in the format of every weight, as FORMAT_ARMS do in that of one."""
FORMAT_FIELDS = ("weight_format", "weight_format_requested", "strides_w")

_NAMES = "build, experiment, linear, arm, k, n, launch_mode, allocation_regime, group_shape"

_CORES = """
SELECT p.build, p.linear, p.arm, p.k, p.launch_mode, p.axis, p.axis_value, p.m, s.median_ns AS value_ns,
       CASE WHEN quantises THEN coalesce(a.used_core_num, a.block_dim) END AS cores,
       CASE WHEN NOT quantises THEN NULL WHEN a.used_core_num IS NOT NULL THEN 'tiling log'
            WHEN a.block_dim IS NOT NULL THEN 'profiler' END AS cores_source,
       CASE WHEN quantises THEN q.vector_cores + least(p.m - q.vector_cores, 0) END AS one_row_a_core,
       CASE WHEN quantises THEN q.used_core_num END AS predicted_cores,
       CASE WHEN quantises THEN a.tiling_key END AS tiling_key, a.dynamic_quant_kernel_count,
       a.calls, CASE WHEN s.median_ns IS NULL THEN coalesce(r.null_reason, p.status_reason) END AS null_reason
FROM (SELECT *, operator = 'dynamic_quant' AS quantises FROM points) p
LEFT JOIN aligned a USING (run_id, experiment, arm, point_id)
LEFT JOIN statistics s USING (build, experiment, arm, point_id)
LEFT JOIN predicted q USING (build, experiment, arm, point_id)
LEFT JOIN reasons r USING (build, experiment, arm, point_id)
WHERE p.operator IN ('dynamic_quant', 'tuple_input')
ORDER BY p.build, p.arm, p.linear, p.k, p.launch_mode, p.axis_value, p.point_id
"""

_STRUCTURE = f"""
WITH seen AS (
    SELECT p.build, p.experiment, p.linear, p.arm, p.k, p.n, p.launch_mode,
           coalesce(p.allocation_regime, '') AS allocation_regime, coalesce(p.group_shape, '') AS group_shape,
           p.axis, p.axis_value, p.point_id, p.m, s.median_ns AS value_ns, a.kernel_op_type, a.tiling_key,
           a.base_m, a.base_n, a.base_k, a.stream_k, coalesce(a.used_core_num, a.block_dim) AS cores,
           CAST(ceil(p.m / a.base_m) AS BIGINT) AS m_cnt, CAST(ceil(p.n / a.base_n) AS BIGINT) AS n_cnt
    FROM points p JOIN aligned a USING (run_id, experiment, arm, point_id)
    LEFT JOIN statistics s USING (build, experiment, arm, point_id)
    WHERE p.operator IN ('quant_linear', 'quant_matmul') AND a.status = 'aligned'
), numbered AS (
    SELECT *, coalesce(row(tiling_key, base_m, base_n, base_k, stream_k, cores) IS DISTINCT FROM
        lag(row(tiling_key, base_m, base_n, base_k, stream_k, cores)) OVER line, true) AS changes
    FROM seen WINDOW line AS (PARTITION BY {_NAMES} ORDER BY axis_value)
), stretches AS (
    SELECT *, sum(changes::INT) OVER (PARTITION BY {_NAMES} ORDER BY axis_value) AS stretch FROM numbered
)
SELECT {_NAMES}, any_value(axis) AS axis, min(axis_value) AS first, max(axis_value) AS last,
       any_value(tiling_key) AS tiling_key, any_value(base_m) AS base_m, any_value(base_n) AS base_n,
       any_value(base_k) AS base_k, max(m_cnt) AS m_cnt, any_value(n_cnt) AS n_cnt,
       any_value(stream_k) AS stream_k, any_value(cores) AS cores,
       arg_min(value_ns, axis_value) AS first_ns, arg_max(value_ns, axis_value) AS last_ns
FROM stretches GROUP BY {_NAMES}, stretch ORDER BY {_NAMES}, first
"""

_FORMATS = """
WITH arms AS (
    SELECT build, load, base_arm = $1 AS forward, ratio, ratio_low, ratio_high
    FROM serving WHERE compared_by = 'arm' AND metric = 'tpot_ns' AND ratio IS NOT NULL
        AND (base_arm, candidate_arm) IN (($1, $2), ($2, $1))
), end_to_end AS (
    SELECT build, string_agg(format('{:+.1f} % ({:+.1f} to {:+.1f}) at {}',
        100 * (CASE WHEN forward THEN ratio ELSE 1 / ratio END - 1),
        100 * (CASE WHEN forward THEN ratio_low ELSE 1 / ratio_high END - 1),
        100 * (CASE WHEN forward THEN ratio_high ELSE 1 / ratio_low END - 1), load), '; ' ORDER BY load
    ) AS serving
    FROM arms GROUP BY build
), layer AS (
    SELECT p.build, p.linear, p.k, p.n, p.m, p.launch_mode, any_value(s.median_ns) AS layer_ns
    FROM points p JOIN statistics s USING (build, experiment, arm, point_id)
    WHERE p.operator = 'quant_linear' GROUP BY ALL
), kernels AS (
    SELECT experiment, point_id, arm, build, any_value(kernel_duration_ns) AS kernel_ns,
           any_value(kernel_weight_format) AS kernel_format
    FROM alignments GROUP BY ALL
), loaded AS (
    SELECT experiment, point_id, arm, build, any_value(weight_format) AS weight_format
    FROM points GROUP BY ALL
)
SELECT c.build, c.experiment, c.linear, c.k, c.n, c.launch_mode, c.axis, c.axis_value, c.m,
       c.base_ns AS nd_ns, c.candidate_ns AS nz_ns, c.verdict, c.verdict_reason,
       CASE WHEN c.refused IS NULL THEN 100 * (c.ratio - 1) END AS nz_percent,
       CASE WHEN c.refused IS NULL THEN 100 * (c.ratio_low - 1) END AS nz_percent_low,
       CASE WHEN c.refused IS NULL THEN 100 * (c.ratio_high - 1) END AS nz_percent_high,
       c.refused AS not_proved, nd.weight_format AS nd_format, nz.weight_format AS nz_format,
       ndk.kernel_format AS nd_kernel_format, nzk.kernel_format AS nz_kernel_format,
       c.base_operator AS nd_operator, c.candidate_operator AS nz_operator,
       c.base_processes AS nd_processes, c.candidate_processes AS nz_processes,
       ndk.kernel_ns AS nd_kernel_ns, nzk.kernel_ns AS nz_kernel_ns, l.layer_ns, e.serving
FROM compared c LEFT JOIN end_to_end e USING (build)
LEFT JOIN loaded nd ON (nd.experiment, nd.point_id, nd.arm, nd.build)
    = (c.experiment, c.point_id, c.base_arm, c.build)
LEFT JOIN loaded nz ON (nz.experiment, nz.point_id, nz.arm, nz.build)
    = (c.experiment, c.point_id, c.candidate_arm, c.build)
LEFT JOIN kernels ndk ON (ndk.experiment, ndk.point_id, ndk.arm, ndk.build)
    = (c.experiment, c.point_id, c.base_arm, c.build)
LEFT JOIN kernels nzk ON (nzk.experiment, nzk.point_id, nzk.arm, nzk.build)
    = (c.experiment, c.point_id, c.candidate_arm, c.build)
LEFT JOIN layer l ON (l.build, l.linear, l.k, l.n, l.m, l.launch_mode)
    = (c.build, c.linear, c.k, c.n, c.m, c.launch_mode)
ORDER BY c.build, c.linear, c.k, c.n, c.launch_mode, c.axis_value
"""

_GROUPED = """
WITH histograms AS (
    SELECT run_id, experiment, arm, point_id,
           string_agg(experts || ' × ' || rows, ', ' ORDER BY rows DESC) AS histogram
    FROM (SELECT run_id, experiment, arm, point_id, rows, count(*) AS experts
          FROM (SELECT run_id, experiment, arm, point_id, unnest(group_list) AS rows FROM points)
          GROUP BY ALL)
    GROUP BY ALL
)
SELECT p.build, p.linear, p.k, p.n, p.arm, p.launch_mode, p.allocation_regime, p.group_shape, p.m_e,
       p.axis, p.axis_value, s.median_ns AS value_ns,
       s.median_ns / lag(s.median_ns) OVER (
           PARTITION BY p.build, p.linear, p.k, p.n, p.arm, p.launch_mode, p.allocation_regime, p.group_shape
           ORDER BY p.m_e) AS over_previous,
       p.allocated_rows, h.histogram, p.empty_experts / p.local_experts AS empty_ratio,
       p.max_m_e * p.local_experts / nullif(p.group_list_sum, 0) AS imbalance,
       a.tiling_key, a.base_m, a.base_n, a.single_n, a.used_core_num, a.workspace_bytes, a.aiv_aic_ratio
FROM points p LEFT JOIN aligned a USING (run_id, experiment, arm, point_id)
LEFT JOIN statistics s USING (build, experiment, arm, point_id)
LEFT JOIN histograms h USING (run_id, experiment, arm, point_id)
WHERE p.operator = 'grouped_matmul'
ORDER BY p.build, p.linear, p.k, p.n, p.arm, p.launch_mode, p.allocation_regime, p.group_shape, p.m_e
"""


def core_counts(tables: RunTables, predicted: pa.Table | None = None) -> pa.Table:
    """A: a row per build and DynamicQuant point, with the cores it ran on and where that number comes from.

    ``cores`` from the tiling log, else from the profiler's block dim; ``one_row_a_core`` is min(vector cores,
    M), null where the platform is not known; ``predicted_cores`` from ``predicted`` (schema PREDICTED). Tuple
    input has no duration: ``null_reason`` says so and ``dynamic_quant_kernel_count`` is what was observed in
    ``calls`` profiled calls.
    """
    return sql(_CORES, _inputs(tables, predicted))


def tiling_stretches(tables: RunTables) -> pa.Table:
    """B: a row per curve and stretch of neighbouring axis values with one observed tiling structure.

    ``first`` to ``last`` are sampled axis values, ``first_ns`` and ``last_ns`` their times; where one row
    ends and the next begins the structure changes. ``m_cnt`` is that of the largest M of the stretch.
    """
    return sql(_STRUCTURE, _inputs(tables, None))


def format_effect(tables: RunTables, serving: pa.Table | None = None) -> pa.Table:
    """C: NZ against ND of each build, a row a point, in separate processes of one sweep.

    ``nz_percent`` (negative: NZ is faster) and its interval are null where the format asked for was not the
    one loaded, and ``not_proved`` says what was; beside it the operators dispatched, the kernels' input
    format, the main kernel, the whole linear of experiment B and, where ``serving`` (a
    ``serving_comparisons`` table) has SERVING_ARMS of the same build, how TPOT changed from ND to NZ at each
    load. That change belongs to all linears and experts at once.
    """
    nd, nz = FORMAT_ARMS
    arms = set(tables.points["arm"].to_pylist())
    parts = [
        compare_arms(one, nd, nz, declared=FORMAT_FIELDS, baseline=one.distinct("build")[-1])
        for one in (tables.only("build_id", [build]) for build in tables.distinct("build_id"))
        if {nd, nz} <= arms
    ]
    compared = pa.concat_tables([schema("comparisons").empty_table(), *parts])
    compared = compared.filter(pc.is_valid(compared["linear"]))
    inputs = _inputs(tables, None) | {"compared": compared}
    inputs["serving"] = schema("serving_comparisons").empty_table() if serving is None else serving
    return sql(_FORMATS, inputs, list(SERVING_ARMS))


def grouped_points(tables: RunTables) -> pa.Table:
    """D: a row per build, curve and M_e with regime, rows on experts, tiling, workspace and AIV:AIC ratio.

    ``histogram`` reads ``experts × rows``; ``empty_ratio`` is the share of experts without rows,
    ``imbalance`` the rows of the fullest expert over the mean; ``over_previous`` the time over that of the
    sampled M_e before.
    """
    return sql(_GROUPED, _inputs(tables, None))


def _inputs(tables: RunTables, predicted: pa.Table | None) -> dict[str, pa.Table]:
    """Tables by name, with point values and null reasons by build."""
    values = process_values(tables.samples, tables.captures, "main")
    builds = dict(zip(tables.runs["run_id"].to_pylist(), tables.runs["build"].to_pylist(), strict=True))
    parts = []
    for build in sorted(set(builds.values())):
        runs = pa.array([run for run, name in builds.items() if name == build], pa.string())
        own = values.filter(pc.is_in(values["run_id"], value_set=runs))
        found = point_statistics(own)
        keys = found.keys.append_column("build", pa.repeat(pa.scalar(build), found.keys.num_rows))
        parts.append(keys.append_column("median_ns", pa.array(found.median_ns)))
    reasons = sql(
        "SELECT r.build, v.experiment, v.arm, v.point_id, max(v.null_reason) AS null_reason FROM found v "
        "JOIN (SELECT DISTINCT run_id, build FROM runs) r USING (run_id) GROUP BY ALL",
        {"found": values, "runs": tables.runs},
    )
    return {
        "points": tables.points,
        "alignments": tables.alignments,
        "aligned": tables.alignments.drop_columns(["build", "build_id", "evidence"]),
        "statistics": pa.concat_tables(parts),
        "reasons": reasons,
        "predicted": PREDICTED.empty_table() if predicted is None else predicted,
    }
