"""Every point with the kernels it left and the tiling record observed for it: nothing is filled in."""

from __future__ import annotations

import pyarrow as pa

from tilewatch.data_contracts import conform
from tilewatch.tasks.plan.kernel_types import DYNAMIC_QUANT, MAIN_KERNELS
from tilewatch.tasks.sql import sql

NO_TILING_AGENTS = ("cpu",)


def alignments_table(
    points: pa.Table, captures: pa.Table, observed: pa.Table, kernels: pa.Table, tilings: pa.Table
) -> pa.Table:
    """One ``alignments`` row per row of ``points`` (of one run).

    Main kernels are those of the operation's operator type (MAIN_KERNELS) in main processes that measured the
    point; each profiled call must have left exactly one. A tiling record is joined by point from the tiling
    processes of the same arm; where an agent has no tiling the status is ``no_tiling``, where the log has
    none it is ``unaligned``. Contradicting records, and a tuning hint that is not the one asked for, leave
    the point unaligned, with the reason.
    """
    types = pa.table(
        {
            "operator": [op for op, names in MAIN_KERNELS.items() for _ in names],
            "op_type": [name for names in MAIN_KERNELS.values() for name in names],
        }
    )
    quant = pa.table({"op_type": list(DYNAMIC_QUANT)})
    tables = {
        "points": points,
        "captures": captures,
        "observed": observed,
        "kernels": kernels,
        "tilings": tilings,
        "main_types": types,
        "quant_types": quant,
        "no_tiling_agents": pa.table({"agent": list(NO_TILING_AGENTS)}),
    }
    return conform("alignments", sql(_ALIGN, tables))


_ALIGN = """
WITH main AS (
    SELECT capture_id, run_id, experiment, arm, agent FROM captures WHERE role = 'main' AND kind = 'timing'
), calls AS (
    SELECT m.run_id, m.experiment, m.arm, o.point_id, sum(o.profiled_calls) AS calls,
           any_value(m.agent) AS agent
    FROM observed o JOIN main m USING (capture_id) WHERE o.status = 'measured' GROUP BY ALL
), found AS (
    SELECT k.run_id, k.experiment, k.arm, k.point_id, k.op_type, k.duration_ns, k.block_dim,
           list_contains(k.input_formats, 'FRACTAL_NZ') AS has_nz_input
    FROM kernels k SEMI JOIN main m USING (capture_id) WHERE k.point_id IS NOT NULL
), by_point AS (
    SELECT f.run_id, f.experiment, f.arm, f.point_id,
           count(*) FILTER (WHERE t.op_type IS NOT NULL) AS kernel_count,
           any_value(f.op_type) FILTER (WHERE t.op_type IS NOT NULL) AS kernel_op_type,
           CAST(median(f.duration_ns) FILTER (WHERE t.op_type IS NOT NULL) AS BIGINT) AS kernel_duration_ns,
           count(*) FILTER (WHERE q.op_type IS NOT NULL) AS dynamic_quant_kernel_count,
           CASE WHEN count(DISTINCT f.block_dim) FILTER (WHERE t.op_type IS NOT NULL) = 1
                THEN any_value(f.block_dim) FILTER (WHERE t.op_type IS NOT NULL) END AS block_dim,
           CASE WHEN bool_and(f.has_nz_input) FILTER (WHERE t.op_type IS NOT NULL) THEN 'FRACTAL_NZ'
                WHEN bool_and(NOT f.has_nz_input) FILTER (WHERE t.op_type IS NOT NULL) THEN 'ND'
                END AS kernel_weight_format
    FROM found f JOIN points p USING (run_id, experiment, arm, point_id)
    LEFT JOIN main_types t ON t.operator = p.operator AND t.op_type = f.op_type
    LEFT JOIN quant_types q ON q.op_type = f.op_type
    GROUP BY ALL
), tiled AS (
    SELECT run_id, experiment, arm, point_id,
           count(DISTINCT (tiling_key, base_m, base_n, base_k, block_dim, tuning_config)) AS variants,
           any_value(tuning_config) AS hint,
           any_value(tiling_key) AS tiling_key, any_value(capture_id) AS tiling_capture_id,
           any_value(base_m) AS base_m, any_value(base_n) AS base_n, any_value(base_k) AS base_k,
           any_value(used_core_num) AS used_core_num, any_value(stream_k) AS stream_k,
           any_value(workspace_bytes) AS workspace_bytes, any_value(aiv_aic_ratio) AS aiv_aic_ratio,
           any_value(single_n) AS single_n, any_value(fields) AS fields
    FROM tilings JOIN (SELECT run_id, experiment, arm, point_id, operator FROM points)
        USING (run_id, experiment, arm, point_id)
    SEMI JOIN main_types USING (operator, op_type) GROUP BY ALL
), joined AS (
    SELECT p.run_id, p.build, p.build_id, p.experiment, p.arm, p.point_id, p.evidence,
           CASE WHEN p.status = 'missing' THEN 'missing'
                WHEN c.agent IN (SELECT agent FROM no_tiling_agents) THEN 'no_tiling'
                WHEN t.variants = 1 AND NOT coalesce(t.hint <> coalesce(p.tuning_config, 0),
                     p.tuning_config IS NOT NULL AND c.agent = 'npu') THEN 'aligned'
                ELSE 'unaligned' END AS status,
           CASE WHEN p.status = 'missing' THEN coalesce(p.status_reason, 'not measured')
                WHEN c.agent IN (SELECT agent FROM no_tiling_agents)
                    THEN 'agent ' || c.agent || ' has no tiling'
                WHEN t.variants > 1 THEN t.variants || ' different tiling records for the same point'
                WHEN t.variants IS NULL THEN 'no tiling record was observed for the point'
                WHEN t.hint <> coalesce(p.tuning_config, 0) THEN 'the tiling saw hint ' || t.hint ||
                     ', asked for was ' || coalesce(CAST(p.tuning_config AS VARCHAR), 'none')
                WHEN t.hint IS NULL AND p.tuning_config IS NOT NULL AND c.agent = 'npu'
                    THEN 'the log does not show the tuning hint that was asked for' END AS reason,
           coalesce(c.calls, 0) AS calls, coalesce(b.kernel_count, 0) AS kernel_count,
           coalesce(c.calls, 0) AS expected_kernel_count,
           b.kernel_op_type, b.kernel_duration_ns,
           CASE WHEN c.calls > 0 THEN coalesce(b.dynamic_quant_kernel_count, 0) END
               AS dynamic_quant_kernel_count,
           CASE WHEN p.weight_format_requested IS NOT NULL THEN b.kernel_weight_format END
               AS kernel_weight_format,
           b.block_dim, t.* EXCLUDE (run_id, experiment, arm, point_id, variants, hint)
    FROM points p
    LEFT JOIN calls c USING (run_id, experiment, arm, point_id)
    LEFT JOIN by_point b USING (run_id, experiment, arm, point_id)
    LEFT JOIN tiled t USING (run_id, experiment, arm, point_id)
)
SELECT * REPLACE (
    CASE WHEN status = 'aligned' THEN tiling_key END AS tiling_key,
    CASE WHEN status = 'aligned' THEN tiling_capture_id END AS tiling_capture_id,
    CASE WHEN status = 'aligned' THEN base_m END AS base_m,
    CASE WHEN status = 'aligned' THEN base_n END AS base_n,
    CASE WHEN status = 'aligned' THEN base_k END AS base_k,
    CASE WHEN status = 'aligned' THEN used_core_num END AS used_core_num,
    CASE WHEN status = 'aligned' THEN stream_k END AS stream_k,
    CASE WHEN status = 'aligned' THEN workspace_bytes END AS workspace_bytes,
    CASE WHEN status = 'aligned' THEN aiv_aic_ratio END AS aiv_aic_ratio,
    CASE WHEN status = 'aligned' THEN single_n END AS single_n,
    CASE WHEN status = 'aligned' THEN fields END AS fields
) FROM joined ORDER BY experiment, arm, point_id
"""
