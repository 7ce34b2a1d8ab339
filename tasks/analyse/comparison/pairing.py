"""Brings the two sides of a comparison onto one row a point: keys, statistics, refusals, history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.analyse.comparison.keys import (
    FORMAT_UNPROVED,
    OVERRIDABLE,
    capture_keys,
    named_differences,
    point_keys,
)
from tilewatch.tasks.analyse.comparison.verdicts import Pairs
from tilewatch.tasks.analyse.statistics.process_values import (
    KEY,
    Floats,
    Integers,
    PointStatistics,
    point_statistics,
    process_values,
)
from tilewatch.tasks.analyse.statistics.spread import HISTORY_SCHEMA, moderated
from tilewatch.tasks.analyse.tables import RunTables
from tilewatch.tasks.sql import sql

SHAPE = (
    "axis", "axis_value", "operator", "linear", "m", "m_executed", "k", "n", "launch_mode",
    "weight_format_requested", "allocation_regime", "allocated_rows", "local_experts", "group_list_type",
    "group_shape", "m_e", "tuning_config",
)  # fmt: skip
"""Columns of ``points`` that a comparison row repeats, the candidate's where both have the point."""


@dataclass(frozen=True)
class Side:
    """What one side brings, one row a (experiment, arm, point); see ``side``."""

    points: pa.Table
    keys: pa.Table
    captures: pa.Table
    statistics: pa.Table
    timing: pa.Table


def side(tables: RunTables, role: str = "main") -> Side:
    """The main (or, for ``role="control"``, the A/A control) processes of ``tables``, ready to be paired."""
    values = process_values(tables.samples, tables.captures, role)
    needed = (*KEY, "lease_id", "device", "null_reason", "value_ns")
    values = values.select(needed)
    timing = sql(_TIMING, {"values": values})
    shape = ", ".join(f"min({name}) AS {name}" for name in SHAPE)
    points = sql(
        f"SELECT experiment, arm, point_id, min(evidence) AS evidence, {shape} FROM points GROUP BY ALL",
        {"points": tables.points},
    )
    statistics = _as_table(point_statistics(values))
    return Side(points, point_keys(tables), capture_keys(tables), statistics, timing)


def pair(
    base: Side,
    candidate: Side,
    *,
    arms: tuple[str, str] | None,
    history: pa.Table | None,
    declared: Sequence[str] = (),
    overrides: Sequence[str] = (),
    check_format: bool = False,
) -> pa.Table:
    """One row per point on either side, sorted; with ``arms`` (of the same tables) the base arm against the
    candidate arm, in the experiments that have both.

    Adds to SHAPE: ``b_``/``c_`` statistics, ``refused`` (keys that differ, except ``declared`` ones and
    ``overrides``; with ``check_format`` also a weight format not proved to be the requested one),
    ``overridden`` (list of differences that ``overrides`` let pass), ``missing`` (why a side has no value),
    ``nothing_to_time``, ``between`` (in different leases), ``spread`` and ``degrees`` of ``history``.
    """
    by_arm = arms is not None
    names = {"b": arms[0], "c": arms[1]} if arms else {}
    tables = {
        f"{p}_{f.name}": getattr(s, f.name) for p, s in (("b", base), ("c", candidate)) for f in fields(s)
    }
    prepared = moderated(history if history is not None else HISTORY_SCHEMA.empty_table())
    slot = "''" if by_arm else "arm"
    chosen = {"b": _only_arm(names["b"], names["c"]), "c": _only_arm(names["c"], names["b"])} if arms else {}
    refusal = named_differences([k for k in OVERRIDABLE if k not in {*declared, *overrides}])
    if check_format and "weight_format" not in overrides:
        refusal += [FORMAT_UNPROVED.format(p=p) for p in ("bp", "cp")]
    query = _PAIR.format(
        slot=slot,
        base_arms=chosen.get("b", ""),
        candidate_arms=chosen.get("c", ""),
        shape=", ".join(f"coalesce(cs.{n}, bs.{n}) AS {n}" for n in SHAPE),
        base_arm=_arm(names.get("b")),
        candidate_arm=_arm(names.get("c")),
        refused=f"nullif(concat_ws('; ', {', '.join(refusal)}), '')" if refusal else "NULL",
        overridden=", ".join(named_differences(sorted(overrides))) or "NULL",
    )
    return sql(query, {**tables, "history": prepared})


def as_pairs(rows: pa.Table) -> Pairs:
    """The numeric view of ``pair``'s rows."""

    def floats(name: str) -> Floats:
        return np.asarray(pc.fill_null(rows[name].cast(pa.float64()), float("nan")).to_numpy())

    def counts(name: str) -> Integers:
        return np.asarray(pc.fill_null(rows[name], 0).to_numpy())

    excluded = pc.or_(rows["refused"].is_valid(), rows["missing"].is_valid())
    return Pairs(
        processes=(counts("b_processes"), counts("c_processes")),
        mean_log=(floats("b_mean_log"), floats("c_mean_log")),
        variance_log=(floats("b_variance_log"), floats("c_variance_log")),
        median_ns=(floats("b_median_ns"), floats("c_median_ns")),
        between=rows["between"].to_numpy(),
        spread=floats("spread"),
        degrees=floats("degrees"),
        excluded=excluded.to_numpy(),
        dies=(np.maximum(counts("b_dies"), 1), np.maximum(counts("c_dies"), 1)),
    )


def _only_arm(name: str, other: str) -> str:
    """SQL condition: rows of arm ``name`` in experiments that also have ``other``."""
    both = f"SELECT experiment FROM c_keys WHERE arm = '{_quoted(other)}'"
    return f"WHERE arm = '{_quoted(name)}' AND experiment IN ({both})"


def _arm(name: str | None) -> str:
    return "p.slot" if name is None else f"'{_quoted(name)}'"


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _as_table(found: PointStatistics) -> pa.Table:
    table = found.keys
    for name in ("processes", "mean_log", "variance_log", "median_ns", "dies"):
        table = table.append_column(name, pa.array(getattr(found, name), from_pandas=True))
    return table


_TIMING = """
SELECT experiment, arm, point_id, string_agg(lease_id, '|' ORDER BY lease_id) AS leases,
    max(null_reason) AS null_reason
FROM (SELECT experiment, arm, point_id, lease_id, max(null_reason) AS null_reason FROM "values" GROUP BY ALL)
GROUP BY ALL
"""

_PAIR = """
WITH bp AS (SELECT *, {slot} AS slot FROM b_keys {base_arms}),
cp AS (SELECT *, {slot} AS slot FROM c_keys {candidate_arms}),
bs AS (SELECT *, {slot} AS slot FROM b_points {base_arms}),
cs AS (SELECT *, {slot} AS slot FROM c_points {candidate_arms}),
bv AS (SELECT *, {slot} AS slot FROM b_statistics {base_arms}),
cv AS (SELECT *, {slot} AS slot FROM c_statistics {candidate_arms}),
bt AS (SELECT *, {slot} AS slot FROM b_timing {base_arms}),
ct AS (SELECT *, {slot} AS slot FROM c_timing {candidate_arms}),
bc AS (SELECT *, {slot} AS slot FROM b_captures {base_arms}),
cc AS (SELECT *, {slot} AS slot FROM c_captures {candidate_arms}),
p AS (SELECT experiment, slot, point_id FROM bp UNION SELECT experiment, slot, point_id FROM cp),
pooled AS (
    SELECT device, method_hash, experiment, arm, max(pooled_spread_log) AS spread, min(degrees) AS degrees
    FROM history GROUP BY ALL
)
SELECT p.experiment, {base_arm} AS base_arm, {candidate_arm} AS candidate_arm, p.point_id, {shape},
    bv.processes AS b_processes, cv.processes AS c_processes,
    bv.mean_log AS b_mean_log, cv.mean_log AS c_mean_log,
    bv.variance_log AS b_variance_log, cv.variance_log AS c_variance_log,
    bv.median_ns AS b_median_ns, cv.median_ns AS c_median_ns, bv.dies AS b_dies, cv.dies AS c_dies,
    bp.dispatched_operator AS b_operator, cp.dispatched_operator AS c_operator,
    bc.method_hash AS b_method, cc.method_hash AS c_method, coalesce(cs.evidence, bs.evidence) AS evidence,
    CASE WHEN bp.point_id IS NOT NULL AND cp.point_id IS NOT NULL
              AND bc.arm IS NOT NULL AND cc.arm IS NOT NULL THEN {refused} END AS refused,
    CASE WHEN bp.point_id IS NOT NULL AND cp.point_id IS NOT NULL
         THEN list_filter([{overridden}]::VARCHAR[], lambda d: d IS NOT NULL) ELSE [] END AS overridden,
    nullif(concat_ws('; ',
        CASE WHEN bv.processes IS NULL THEN 'no value in the baseline: ' ||
            CASE WHEN bp.point_id IS NULL THEN 'not planned there'
                 ELSE coalesce(bp.status_reason, bt.null_reason, 'no kept sample') END END,
        CASE WHEN cv.processes IS NULL THEN 'no value in the candidate: ' ||
            CASE WHEN cp.point_id IS NULL THEN 'not planned there'
                 ELSE coalesce(cp.status_reason, ct.null_reason, 'no kept sample') END END), '') AS missing,
    CASE WHEN bt.null_reason = ct.null_reason AND bv.processes IS NULL AND cv.processes IS NULL
         THEN ct.null_reason END AS nothing_to_time,
    coalesce(bt.leases <> ct.leases, false) AS between,
    greatest(coalesce(bh.spread, bg.spread), coalesce(ch.spread, cg.spread)) AS spread,
    least(coalesce(bh.degrees, bg.degrees), coalesce(ch.degrees, cg.degrees)) AS degrees
FROM p
LEFT JOIN bp USING (experiment, slot, point_id) LEFT JOIN cp USING (experiment, slot, point_id)
LEFT JOIN bs USING (experiment, slot, point_id) LEFT JOIN cs USING (experiment, slot, point_id)
LEFT JOIN bv USING (experiment, slot, point_id) LEFT JOIN cv USING (experiment, slot, point_id)
LEFT JOIN bt USING (experiment, slot, point_id) LEFT JOIN ct USING (experiment, slot, point_id)
LEFT JOIN bc ON bc.experiment = p.experiment AND bc.slot = p.slot
LEFT JOIN cc ON cc.experiment = p.experiment AND cc.slot = p.slot
LEFT JOIN history bh ON bh.device = bc.device AND bh.method_hash = bc.method_hash
    AND bh.experiment = p.experiment AND bh.arm = bc.arm AND bh.point_id = p.point_id
LEFT JOIN history ch ON ch.device = cc.device AND ch.method_hash = cc.method_hash
    AND ch.experiment = p.experiment AND ch.arm = cc.arm AND ch.point_id = p.point_id
LEFT JOIN pooled bg ON bg.device = bc.device AND bg.method_hash = bc.method_hash
    AND bg.experiment = p.experiment AND bg.arm = bc.arm
LEFT JOIN pooled cg ON cg.device = cc.device AND cg.method_hash = cc.method_hash
    AND cg.experiment = p.experiment AND cg.arm = cc.arm
ORDER BY p.experiment, base_arm, candidate_arm, axis, linear, k, n, axis_value, p.point_id
"""
