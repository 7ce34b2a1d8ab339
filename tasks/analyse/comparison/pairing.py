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
from tilewatch.tasks.analyse.comparison.levels import ProcessDeviations
from tilewatch.tasks.analyse.comparison.verdicts import Pairs
from tilewatch.tasks.analyse.statistics.process_values import (
    KEY,
    Floats,
    Integers,
    PointStatistics,
    point_statistics,
    process_values,
)
from tilewatch.tasks.analyse.statistics.spread import HISTORY_SCHEMA
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
    processes: pa.Table
    """One row a value: KEY, ``capture_id`` and ``away``, what the process is off its point's centre."""


def side(tables: RunTables, role: str = "main") -> Side:
    """The main (or, for ``role="control"``, the A/A control) processes of ``tables``, ready to be paired."""
    values = process_values(tables.samples, tables.captures, role)
    needed = (*KEY, "capture_id", "lease_id", "device", "null_reason", "value_ns")
    values = values.select(needed)
    timing = sql(_TIMING, {"values": values})
    shape = ", ".join(f"min({name}) AS {name}" for name in SHAPE)
    points = sql(
        f"SELECT experiment, arm, point_id, min(evidence) AS evidence, {shape} FROM points GROUP BY ALL",
        {"points": tables.points},
    )
    found = point_statistics(values)
    kept = values.filter(values["value_ns"].is_valid()).select([*KEY, "capture_id"])
    processes = kept.append_column("away", pa.array(found.away))
    return Side(points, point_keys(tables), capture_keys(tables), _as_table(found), timing, processes)


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
    ``nothing_to_time``, ``between`` (in different leases), and what ``history`` says of leases of this
    device and method: ``lease_log``, ``lease_degrees``, ``own_log``, ``own_degrees``.
    """
    by_arm = arms is not None
    names = {"b": arms[0], "c": arms[1]} if arms else {}
    tables = {
        f"{p}_{f.name}": getattr(s, f.name) for p, s in (("b", base), ("c", candidate)) for f in fields(s)
    }
    known = history if history is not None else HISTORY_SCHEMA.empty_table()
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
    return sql(query, {**tables, "history": known})


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
        call_ns=(np.exp(floats("b_mean_log")), np.exp(floats("c_mean_log"))),
        freedom=(np.nan_to_num(floats("b_degrees")), np.nan_to_num(floats("c_degrees"))),
        between=rows["between"].to_numpy(),
        spread=floats("lease_log"),
        degrees=floats("lease_degrees"),
        own=floats("own_log"),
        own_degrees=floats("own_degrees"),
        excluded=excluded.to_numpy(),
    )


def deviations(rows: pa.Table, one: Side, prefix: str) -> ProcessDeviations:
    """What each process of one side is off the centre of the pair's row; ``prefix`` is base or candidate."""
    asked = {"rows": rows.select(["experiment", f"{prefix}_arm", "point_id"]), "processes": one.processes}
    found = sql(_DEVIATIONS.format(arm=f"{prefix}_arm"), asked)
    names = ("place", "process", "stratum", "away")
    return ProcessDeviations(*(np.asarray(found[name].to_numpy()) for name in names))


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
    for name in ("processes", "mean_log", "variance_log", "degrees"):
        table = table.append_column(name, pa.array(getattr(found, name), from_pandas=True))
    return table


_DEVIATIONS = """
SELECT r.place, dense_rank() OVER (ORDER BY p.capture_id) - 1 AS process,
    dense_rank() OVER (ORDER BY p.experiment, p.arm) - 1 AS stratum, p.away
FROM (SELECT *, row_number() OVER () - 1 AS place FROM rows) r
JOIN processes p ON (p.experiment, p.arm, p.point_id) = (r.experiment, r.{arm}, r.point_id)
ORDER BY r.place, process
"""

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
leases AS (
    SELECT device, method_hash, max(lease_log) AS lease_log, min(lease_degrees) AS lease_degrees,
           max(own_log) AS own_log, min(own_degrees) AS own_degrees
    FROM history WHERE lease_log IS NOT NULL GROUP BY ALL
)
SELECT p.experiment, {base_arm} AS base_arm, {candidate_arm} AS candidate_arm, p.point_id, {shape},
    bv.processes AS b_processes, cv.processes AS c_processes,
    bv.mean_log AS b_mean_log, cv.mean_log AS c_mean_log,
    bv.variance_log AS b_variance_log, cv.variance_log AS c_variance_log,
    bv.degrees AS b_degrees, cv.degrees AS c_degrees,
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
    greatest(bl.lease_log, cl.lease_log) AS lease_log, greatest(bl.own_log, cl.own_log) AS own_log,
    least(bl.lease_degrees, cl.lease_degrees) AS lease_degrees,
    least(bl.own_degrees, cl.own_degrees) AS own_degrees
FROM p
LEFT JOIN bp USING (experiment, slot, point_id) LEFT JOIN cp USING (experiment, slot, point_id)
LEFT JOIN bs USING (experiment, slot, point_id) LEFT JOIN cs USING (experiment, slot, point_id)
LEFT JOIN bv USING (experiment, slot, point_id) LEFT JOIN cv USING (experiment, slot, point_id)
LEFT JOIN bt USING (experiment, slot, point_id) LEFT JOIN ct USING (experiment, slot, point_id)
LEFT JOIN bc ON bc.experiment = p.experiment AND bc.slot = p.slot
LEFT JOIN cc ON cc.experiment = p.experiment AND cc.slot = p.slot
LEFT JOIN leases bl ON bl.device = bc.device AND bl.method_hash = bc.method_hash
LEFT JOIN leases cl ON cl.device = cc.device AND cl.method_hash = cc.method_hash
ORDER BY p.experiment, base_arm, candidate_arm, axis, linear, k, n, axis_value, p.point_id
"""
