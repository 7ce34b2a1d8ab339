"""The ledger: what W8A8 saves against BF16 and what it adds, per linear and M, with break-even intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import stats

from tilewatch.data_contracts import conform, from_rows, schema
from tilewatch.tasks.analyse.cliffs.steps import Mask
from tilewatch.tasks.analyse.savings.break_even import sentence
from tilewatch.tasks.analyse.statistics.limits import ANALYSIS_VERSION, LedgerLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats, point_statistics, process_values
from tilewatch.tasks.analyse.tables import RunTables
from tilewatch.tasks.sql import sql

LAUNCH_AND_DISPATCH = "launch_and_dispatch"
"""What the whole linear costs beyond its two kernels measured alone."""

NO_LINEAR = "the whole linear was not measured"
NO_PRODUCER = "tuple input: neither the fused producer nor its BF16 counterpart was measured"
NO_DISPATCH = "grouped input arrives quantised: the dispatch and SwiGLU-quant differences were not measured"
NO_QUANT = "DynamicQuant was not measured at this M and K"
NOT_ZERO = "tuple input: zero DynamicQuant kernels were not observed"
SLOWER_ALONE = "negative beyond its interval: the two kernels take longer alone than in the whole linear"
SPREAD_ALONE = "negative, but within its interval"
NO_INTERVAL = "negative, and a single process cannot tell whether beyond chance"


def ledger_table(
    tables: RunTables, *, cliffs: pa.Table | None = None, limits: LedgerLimits | None = None
) -> pa.Table:
    """A ``ledger`` table: one row per run, linear, kind of input, launch mode, (grouped) regime and shape, M.

    T_bf16 is the BF16 operator (``matmul``, or ``grouped_matmul`` with BF16 weights), T_int8 its INT8
    counterpart of the same experiment and point. Standalone input adds DynamicQuant at the same M and K, and
    T_other is what the measured whole linear costs beyond the two. Where a part was not measured T_other is
    null with its reason, and there is neither outcome nor break-even. A negative T_other is null where a
    single process a part cannot judge it; else it stays, because net does not rest on it, and
    ``t_other_reason`` says whether it is beyond chance, with the range of DynamicQuant's processes.
    ``cliffs`` (a ``cliffs`` table) names what bounds the intervals.
    """
    runs = [_run(tables.only("run_id", [run]), limits or LedgerLimits()) for run in tables.distinct("run_id")]
    return _with_break_even(pa.concat_tables(runs), cliffs) if runs else from_rows("ledger", [])


def _run(tables: RunTables, limits: LedgerLimits) -> pa.Table:
    measured = process_values(tables.samples, tables.captures, "main")
    found = point_statistics(measured)
    values = found.keys
    for name in ("processes", "variance_log", "median_ns"):
        values = values.append_column(name, pa.array(getattr(found, name), from_pandas=True))
    inputs = {"points": tables.points, "statistics": values, "alignments": tables.alignments}
    inputs["extremes"] = sql(_EXTREMES, {"measured": measured})
    rows = sql(_ROWS, inputs)
    return _priced(rows, limits)


def _priced(rows: pa.Table, limits: LedgerLimits) -> pa.Table:
    """Add T_other, net, its band and the outcome to the joined times."""

    def time(name: str) -> Floats:
        return np.asarray(pc.fill_null(rows[name].cast(pa.float64()), float("nan")).to_numpy())

    bf16, int8, quant, linear = (time(f"t_{n}_ns") for n in ("bf16", "int8", "dynamic_quant", "linear"))
    standalone = pc.equal(rows["input_kind"], "standalone").to_numpy()
    other = np.where(standalone, linear - int8 - quant, np.nan)
    other_half = _half_width(rows, {"int8": int8, "quant": quant, "linear": linear}, linear, limits)
    untold = (other < 0) & np.isnan(other_half)
    other = np.where(untold, np.nan, other)
    net = bf16 - int8 - quant - other
    half = _half_width(rows, {"bf16": bf16, "linear": linear}, bf16, limits)
    outcome = np.select(
        [np.isnan(net) | np.isnan(half), net > half, net < -half],
        ["unknown", "int8_wins", "bf16_wins"],
        "no_difference",
    )
    parts = [[] if np.isnan(value) else [(LAUNCH_AND_DISPATCH, float(value))] for value in other]
    columns = {
        "t_other_ns": pa.array(other, from_pandas=True),
        "t_other_parts": pa.array(parts, pa.map_(pa.string(), pa.float64())),
        "t_other_reason": _reasons(rows, other, quant, standalone, untold, other_half),
        "net_ns": pa.array(net, from_pandas=True),
        "net_low_ns": pa.array(net - half, from_pandas=True),
        "net_high_ns": pa.array(net + half, from_pandas=True),
        "outcome": pa.array(outcome.astype(object), pa.string()),
        "analysis_version": pa.repeat(ANALYSIS_VERSION, rows.num_rows),
    }
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    return rows


def _half_width(rows: pa.Table, parts: Mapping[str, Floats], whole: Floats, limits: LedgerLimits) -> Floats:
    """Half width of the interval of a sum of signed parts: Welch on their process values, at least the floor.

    What two parts have in common must not be among them: net is T_bf16 − T_linear, so the noise of the parts
    between the two does not count. The floor is a share of ``whole``. NaN under two processes a part.
    """
    squares, counts = [], []
    for name, value in parts.items():
        variance = np.asarray(pc.fill_null(rows[f"{name}_variance"], float("nan")).to_numpy())
        count = np.asarray(pc.fill_null(rows[f"{name}_processes"], 0).to_numpy()).astype(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            squares.append(value**2 * variance / count)
        counts.append(count)
    total = np.sum(squares, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = total**2 / sum(part**2 / (n - 1) for part, n in zip(squares, counts, strict=True))
    freedom = np.where(total == 0, np.inf, freedom)
    half = np.where(total == 0, 0.0, stats.t.ppf(1 - limits.alpha / 2, freedom) * np.sqrt(total))
    floor = np.maximum(limits.relative_floor * whole, limits.absolute_floor_ns)
    return np.asarray(np.where(np.isnan(half), np.nan, np.maximum(half, floor)))


def _reasons(
    rows: pa.Table, other: Floats, quant: Floats, standalone: Mask, untold: Mask, half: Floats
) -> pa.Array:
    """Why T_other is unknown, or what is odd about a negative one; null where there is nothing to say."""
    grouped = pc.not_equal(rows["allocation_regime"], "").to_numpy()
    floor = LedgerLimits().absolute_floor_ns
    said = [
        (other < -half, SLOWER_ALONE),
        (other < -floor, SPREAD_ALONE),
        (untold, NO_INTERVAL),
        (~np.isnan(other), ""),
        (standalone & np.isnan(quant), NO_QUANT),
        (standalone, NO_LINEAR),
        (np.isnan(quant), NOT_ZERO),
        (grouped, NO_DISPATCH),
    ]
    conditions, words = [condition for condition, _ in said], [text for _, text in said]
    reason = np.select(conditions, words, NO_PRODUCER).astype(object)
    for row in np.flatnonzero(other < -floor):
        low, high = (rows[f"quant_{end}_ns"][int(row)].as_py() / 1e3 for end in ("low", "high"))
        reason[row] += f" (DynamicQuant alone {low:.1f} to {high:.1f} µs between processes)"
    return pa.array(reason, pa.string(), mask=reason == "")


_CURVE = (
    "run_id", "experiment", "linear", "k", "n", "input_kind", "launch_mode", "allocation_regime",
    "group_shape",
)  # fmt: skip


def _with_break_even(rows: pa.Table, cliffs: pa.Table | None) -> pa.Table:
    """Add ``break_even``, the same for all rows of a curve, and bring the table to its contract."""
    held = rows.select([*_CURVE, "arms", "m", "outcome"]).to_pylist()
    curves: dict[tuple[Any, ...], list[int]] = {}
    for place, row in enumerate(held):
        curves.setdefault(tuple(row[name] for name in _CURVE), []).append(place)
    steps = cliffs.to_pylist() if cliffs is not None else []
    words: list[str | None] = [None] * rows.num_rows
    for places in curves.values():
        first = held[places[0]]
        axis, outcomes = [held[p]["m"] for p in places], [held[p]["outcome"] for p in places]
        text = sentence(axis, outcomes, _bounds(steps, first), "M_e" if first["allocation_regime"] else "M")
        for place in places:
            words[place] = text
    rows = rows.append_column("break_even", pa.array(words, pa.string()))
    return conform("ledger", rows.select(schema("ledger").names))


def _bounds(cliffs: list[dict[str, Any]], row: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Cliffs of the arms behind a ledger row's curve, as (arm, before, after)."""
    words = {row["linear"], f"K{row['k']}", f"N{row['n']}", row["launch_mode"]}
    words |= {row["allocation_regime"], row["group_shape"]} - {""}
    return [
        (c["arm"], c["before"], c["after"])
        for c in cliffs
        if c["run_id"] == row["run_id"] and c["experiment"] == row["experiment"] and c["class"] != "none"
        and c["arm"] in row["arms"] and words <= set(c["curve"].split())
    ]  # fmt: skip


_EXTREMES = """
SELECT experiment, arm, point_id, min(value_ns) AS low_ns, max(value_ns) AS high_ns FROM measured GROUP BY ALL
"""

_ROWS = """
WITH v AS (
    SELECT p.*, s.processes, s.variance_log, s.median_ns, e.low_ns, e.high_ns,
           a.dynamic_quant_kernel_count AS quant_kernels
    FROM points p LEFT JOIN statistics s USING (experiment, arm, point_id)
    LEFT JOIN extremes e USING (experiment, arm, point_id)
    LEFT JOIN alignments a USING (experiment, arm, point_id)
), kinds AS (
    SELECT *, CASE
        WHEN operator = 'matmul' OR (operator = 'grouped_matmul' AND dtype_w = 'bfloat16') THEN 'bf16'
        WHEN operator = 'quant_matmul' AND dtype_w = 'int8' THEN 'int8'
        WHEN operator = 'grouped_matmul' AND dtype_w = 'int8' AND tuning_config IS NULL THEN 'int8'
        WHEN operator = 'quant_linear' THEN 'linear' END AS kind
    FROM v WHERE linear IS NOT NULL
), one AS (
    SELECT * FROM kinds WHERE kind IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY experiment, point_id, kind ORDER BY arm <> 'tuple_input', arm) = 1
), bf16 AS (SELECT * FROM one WHERE kind = 'bf16'),
int8 AS (SELECT * FROM one WHERE kind = 'int8'),
linear AS (SELECT * FROM one WHERE kind = 'linear'),
quant AS (
    SELECT m, k, launch_mode, median_ns, variance_log, processes, low_ns, high_ns FROM v
    WHERE operator = 'dynamic_quant' AND median_ns IS NOT NULL
    QUALIFY row_number() OVER (PARTITION BY m, k, launch_mode ORDER BY experiment, arm, linear, point_id) = 1
), proof AS (
    SELECT m, k, linear, launch_mode, max(quant_kernels) AS kernels FROM v
    WHERE operator = 'tuple_input' GROUP BY ALL
), dense AS (
    SELECT b.* EXCLUDE (quant_kernels, low_ns, high_ns), i.median_ns AS int8_ns, i.arm AS int8_arm,
           i.variance_log AS int8_variance, i.processes AS int8_processes,
           l.median_ns AS linear_ns, l.arm AS linear_arm,
           l.variance_log AS linear_variance, l.processes AS linear_processes,
           q.variance_log AS quant_variance, q.processes AS quant_processes,
           q.low_ns AS quant_low_ns, q.high_ns AS quant_high_ns,
           greatest(i.quant_kernels, t.kernels) AS quant_kernels, q.median_ns AS quant_ns
    FROM bf16 b LEFT JOIN int8 i USING (experiment, point_id) LEFT JOIN linear l USING (experiment, point_id)
    LEFT JOIN quant q ON q.m = b.m AND q.k = b.k AND q.launch_mode = b.launch_mode
    LEFT JOIN proof t ON t.m = b.m AND t.k = b.k AND t.linear = b.linear AND t.launch_mode = b.launch_mode
    WHERE i.point_id IS NOT NULL OR l.point_id IS NOT NULL
), rows AS (
    SELECT *, 'standalone' AS input_kind, quant_ns AS t_dynamic_quant_ns FROM dense WHERE operator = 'matmul'
    UNION ALL
    SELECT * REPLACE (NULL AS linear_ns, NULL AS linear_arm), 'tuple_input',
           CASE WHEN quant_kernels = 0 THEN 0.0 END
    FROM dense WHERE int8_arm IS NOT NULL
)
SELECT build, build_id, run_id, evidence, experiment, linear, input_kind, launch_mode,
    coalesce(allocation_regime, '') AS allocation_regime, coalesce(group_shape, '') AS group_shape,
    coalesce(m_e, m) AS m, k, n, median_ns AS t_bf16_ns, int8_ns AS t_int8_ns, t_dynamic_quant_ns,
    linear_ns AS t_linear_ns, variance_log AS bf16_variance, processes AS bf16_processes,
    linear_variance, linear_processes, int8_variance, int8_processes, quant_variance, quant_processes,
    quant_low_ns, quant_high_ns,
    list_filter([arm, int8_arm, linear_arm], lambda a: a IS NOT NULL) AS arms
FROM rows
ORDER BY experiment, linear, k, n, input_kind, launch_mode, allocation_regime, group_shape, m
"""
