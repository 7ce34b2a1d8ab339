"""Prediction against observation: agreement by field, every disagreement, and what may have caused it.

A disagreement is a finding about the build; nothing here settles it.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa

FIELDS = (
    "tiling_key", "block_dim", "used_core_num", "base_m", "base_n", "base_k", "m_cnt", "n_cnt", "stream_k",
    "ub_template", "aiv_aic_ratio", "single_n", "tuning_config", "schedule_mode", "workspace_bytes",
)  # fmt: skip

_ANY = (
    "cores are limited (stream or process core control), so tiling saw fewer than the platform has",
    "the CANN build is not the version predicted for, or carries patches",
    "leading dimensions of the activation were not folded into M",
)
REASONS = {
    "DynamicQuant": (
        *_ANY,
        "the framework launched DynamicQuantV2 (an offset output), which keeps the generic branch",
        "the tiling object is shared by a thread: a field no branch writes keeps an earlier call's value",
    ),
    "QuantBatchMatmulV3": (
        *_ANY,
        "a closed whitelist (Perchannel, Pertoken, KN, Basic, BasicLimit) matched",
        "the closed matmul library has moved on from the block search restated here",
        "a runtime_kb or AOE tuning bank on the host holds this shape",
        "the reported L2, UB or L1 size differs from the platform table",
        "the framework chose another transpose attribute or weight format",
        "the asc-devkit version decides whether the 950 uses the Tensor API template",
    ),
    "GroupedMatmul": (
        *_ANY,
        "this CANN release carries another ops-transformer text than assumed",
        "the allocated rows of x are not those predicted for",
        "a tuning_config reached the host, or op-plugin dropped it (aclnnGroupedMatmulV4)",
        "base block, steps and single_n rest on source text alone: no unit test of CANN asserts them",
    ),
}

# The same operator under its versions' names, and each field of both sides as text, where both have it.
_JOINED = """
WITH seen AS (
    SELECT DISTINCT experiment, arm, point_id, {operator} AS operator, evidence, {columns}, fields
    FROM observed WHERE point_id IS NOT NULL AND {type} IS NOT NULL
), joined AS (
    SELECT p.experiment, p.arm, p.point_id, p.m, p.k, p.n, s.operator, s.evidence, p.rule,
           p AS mine, s AS theirs
    FROM (SELECT *, {predicted_operator} AS operator FROM predicted WHERE tiling_key IS NOT NULL) p
    JOIN seen s USING (experiment, arm, point_id, operator)
), typed AS ({typed}
), tiling_data AS (
    SELECT * EXCLUDE (entry, mine, theirs), entry.key AS field, entry.value AS predicted,
           map_extract(theirs.fields, entry.key)[1] AS observed
    FROM (SELECT *, unnest(map_entries(mine.fields)) AS entry FROM joined)
)
SELECT * FROM (FROM typed UNION ALL BY NAME FROM tiling_data)
WHERE predicted IS NOT NULL AND observed IS NOT NULL
"""
_TYPED = """
    SELECT * EXCLUDE (mine, theirs), '{name}' AS field,
           mine.{name}::VARCHAR AS predicted, theirs.{name}::VARCHAR AS observed FROM joined"""
_OPERATOR = """CASE WHEN {type} LIKE 'DynamicQuant%' THEN 'DynamicQuant'
    WHEN {type} LIKE 'QuantBatchMatmul%' THEN 'QuantBatchMatmulV3' ELSE {type} END"""


@dataclass(frozen=True)
class Agreement:
    """Outcome of a comparison.

    ``by_field``: operator, evidence, field, compared, agree, differ. ``disagreements``: the point, its m, k
    and n, operator, evidence, field, predicted, observed, rule and reasons, one row each. Simulated records
    stay apart.
    """

    by_field: pa.Table
    disagreements: pa.Table


def compare(predicted: pa.Table, observed: pa.Table) -> Agreement:
    """Join records on point and operator, and compare every field that both sides have.

    ``predicted`` is the table of point_predictions. ``observed`` is ``tilings``, or ``alignments`` (whose
    operator type is ``kernel_op_type``). Equal records of a point count once; a field that is null on
    either side is not compared, and a prediction without a key (unknown) is not either.
    """
    type_column = "op_type" if "op_type" in observed.column_names else "kernel_op_type"
    shared = [name for name in FIELDS if name in observed.column_names]
    statement = _JOINED.format(
        operator=_OPERATOR.format(type=type_column),
        predicted_operator=_OPERATOR.format(type="op_type"),
        type=type_column,
        columns=", ".join(shared),
        typed=" UNION ALL ".join(_TYPED.format(name=name) for name in shared),
    )
    reasons = pa.table(
        {"operator": list(REASONS), "reasons": ["; ".join(texts) for texts in REASONS.values()]}
    )
    with duckdb.connect() as database:
        database.register("predicted", predicted)
        database.register("observed", observed)
        database.register("why", reasons)
        database.execute(f"CREATE TEMP TABLE compared AS {statement}")
        by_field = database.sql(
            "SELECT operator, evidence, field, count(*) AS compared, "
            "count(*) FILTER (WHERE predicted = observed) AS agree, "
            "count(*) FILTER (WHERE predicted <> observed) AS differ "
            "FROM compared GROUP BY ALL ORDER BY ALL"
        ).to_arrow_table()
        different = database.sql(
            "SELECT compared.*, reasons FROM compared LEFT JOIN why USING (operator) "
            "WHERE predicted <> observed ORDER BY operator, experiment, arm, point_id, field"
        ).to_arrow_table()
    return Agreement(by_field, different)
