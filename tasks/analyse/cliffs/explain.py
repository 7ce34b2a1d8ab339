"""Cliffs with their cause: what the tiling records on both sides say, in a sentence with numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.analyse.cliffs.cliffs import Cliff, find_cliffs
from tilewatch.tasks.analyse.cliffs.curves import Curves, curves
from tilewatch.tasks.analyse.cliffs.steps import steps
from tilewatch.tasks.analyse.cliffs.tiling_records import (
    Records,
    field_changes,
    observed,
    of_other_kernels,
    predicted,
    unit_counts,
)
from tilewatch.tasks.analyse.statistics.limits import ANALYSIS_VERSION, CliffLimits
from tilewatch.tasks.analyse.tables import RunTables

_AXIS = {"m": "M", "m_e": "M_e"}


@dataclass(frozen=True)
class Explanation:
    """Why a boundary is a cliff: explained, unexplained or silent, from which records, and in words."""

    verdict: str
    evidence: str
    changed: tuple[str, ...]
    words: str


def cliff_table(
    tables: RunTables,
    *,
    limits: CliffLimits | None = None,
    predictions: pa.Table | None = None,
    tilings: pa.Table | None = None,
) -> pa.Table:
    """Cliffs of every run and curve with their explanation, and silent tiling changes: a ``cliffs`` table.

    ``predictions`` (experiment, arm, point_id and the tiling columns of ``alignments``) is only read where no
    observed record stands on both sides, and such a row says that it rests on prediction. ``tilings`` brings
    in the other kernels of a call (DynamicQuant before the matmul of a linear), named before their fields.
    """
    limits = limits or CliffLimits()
    rows: list[dict[str, Any]] = []
    for run in tables.distinct("run_id"):
        own = tilings.filter(pc.equal(tilings["run_id"], run)) if tilings is not None else None
        rows += _run_rows(tables.only("run_id", [run]), limits, predictions, own)
    return from_rows("cliffs", rows)


def _run_rows(
    tables: RunTables, limits: CliffLimits, predictions: pa.Table | None, tilings: pa.Table | None
) -> list[dict[str, Any]]:
    found = curves(tables)
    if not found.rows.num_rows:
        return []
    seen = observed(found.rows, tables.alignments)
    sources = [seen] if predictions is None else [seen, predicted(found.rows, predictions)]
    others = {} if tilings is None else of_other_kernels(found.rows, tables.alignments, tilings)
    agents = tables.distinct("agent")
    rows = []
    for cliff in find_cliffs(found, limits):
        why = explain(found, cliff, sources, agents, others)
        rows.append(_row(found, cliff, why))
    for cliff in _silent(found, seen, limits):
        changes = field_changes(seen, cliff.low, _neighbours(found, cliff.low))
        words = ", ".join(f"{name} {old}→{new}" for name, (old, new) in changes.items())
        changed = tuple(f"{name}: {old} -> {new}" for name, (old, new) in changes.items())
        why = Explanation("silent", "observed", changed, f"{words}; no step in latency")
        rows.append(_row(found, cliff, why))
    return rows


def _silent(found: Curves, seen: Records, limits: CliffLimits) -> list[Cliff]:
    """Steps that stay on the trend although the observed tiling changes."""
    every = steps(found, limits)
    quiet = (np.abs(every.excess) <= every.threshold) & seen.structure_changes()[every.low]
    return [
        Cliff(
            int(every.low[i]), int(found.axis[every.low[i]]), int(found.axis[every.low[i] + 1]),
            float(found.value_ns[every.low[i]]), float(found.value_ns[every.low[i] + 1]),
            float(every.ratio[i]), float(every.trend_ratio[i]), "none", (),
        )
        for i in np.flatnonzero(quiet)
    ]  # fmt: skip


def explain(
    found: Curves,
    cliff: Cliff,
    sources: list[Records],
    agents: tuple[str, ...] = (),
    others: Mapping[str, Records] | None = None,
) -> Explanation:
    """Explain one cliff from the first of ``sources`` (observed before predicted) known on both sides.

    A changed tiling field explains; so does a derived unit count that moves the way the latency does. Where
    the main kernel was observed, so do those of ``others``, by operator type.
    """
    if "no_tiling" in {sources[0].table["status"][row].as_py() for row in (cliff.low, cliff.low + 1)}:
        agent = agents[0] if len(agents) == 1 else "cpu"
        return Explanation("unexplained", "none", (), f"no tiling record exists for the {agent} agent")
    known = [records for records in sources if records.known(cliff.low)]
    if not known:
        return Explanation("unexplained", "none", (), _why_unknown(sources[0], cliff.low))
    said = [_from_records(found, cliff, records, others or {}) for records in known]
    # Blocks launched, which a profiler tells, may explain a step; where they do not they rule nothing out.
    settled = [
        why for why, of in zip(said, known, strict=True) if why.verdict == "explained" or of.tiled(cliff.low)
    ]
    return (settled or said)[0]


def _from_records(
    found: Curves, cliff: Cliff, records: Records, others: Mapping[str, Records]
) -> Explanation:
    beside = _neighbours(found, cliff.low)
    changes = field_changes(records, cliff.low, beside)
    units = _unit_changes(records, cliff, found, beside)
    parts = [f"{name} {old}→{new}" for name, (old, new) in changes.items()]
    base_m = records.table["base_m"][cliff.low].as_py()
    if units and "base_m" not in changes and base_m is not None:
        parts.append(f"base_m stays {base_m}")
    parts += [f"{name} {old}→{new}" for name, (old, new) in units.items()]
    every = {**changes, **units}
    if records.evidence == "observed":
        for op_type, own in others.items():
            if own.known(cliff.low):
                more = {**field_changes(own, cliff.low, beside), **_unit_changes(own, cliff, found, beside)}
                parts += [f"{op_type} {name} {old}→{new}" for name, (old, new) in more.items()]
                every |= {f"{op_type} {name}": sides for name, sides in more.items()}
    changed = [f"{name}: {old} -> {new}" for name, (old, new) in every.items()]
    verdict = "explained" if every else "unexplained"
    words = ", ".join(parts) or _same(records, cliff.low)
    if records.evidence == "predicted":
        words += " (by prediction alone; no tiling record was observed)"
    return Explanation(verdict, records.evidence, tuple(changed), words)


def _unit_changes(
    records: Records, cliff: Cliff, found: Curves, beside: tuple[bool, bool]
) -> dict[str, tuple[int, int]]:
    """Unit counts that cross an integer in the direction of the latency, at this step and not at every one.

    What also moves the same way at each neighbouring step moves with the axis: it explains no single step.
    """
    rows = [cliff.low - 1] * beside[0] + [cliff.low, cliff.low + 1] + [cliff.low + 2] * beside[1]
    points = found.rows.select(["m", "m_e", "max_m_e", "n", "group_list"])
    counts = [unit_counts(records, row, points.slice(row, 1).to_pylist()[0]) for row in rows]
    at, slower = int(beside[0]), cliff.ratio > cliff.trend_ratio

    def moved(name: str, step: int) -> bool:
        old, new = counts[step].get(name), counts[step + 1].get(name)
        return old is not None and new is not None and new != old and (new > old) == slower

    others = [step for step in range(len(rows) - 1) if step != at]
    return {
        name: (counts[at][name], counts[at + 1][name])
        for name in counts[at]
        if moved(name, at) and not (others and all(moved(name, step) for step in others))
    }


def _same(records: Records, low: int) -> str:
    shown = [
        f"{name} {records.table[name][low].as_py()}"
        for name in ("tiling_key", "base_m", "block_dim")
        if records.table[name][low].is_valid
    ]
    return f"the tiling record is the same on both sides ({', '.join(shown)})"


def _why_unknown(records: Records, low: int) -> str:
    for row in (low, low + 1):
        status, reason = records.table["status"][row].as_py(), records.table["reason"][row].as_py()
        if status is not None and status != "aligned":
            return f"unaligned: {reason or 'no tiling record was observed'}"
    return "no tiling record was observed on both sides"


def _distance(found: Curves, low: int) -> str:
    """How far both sides are from the least time that the device allows; blank where that is not known."""
    least, bound = (found.rows[name].slice(low, 2).to_pylist() for name in ("least_ns", "least_bound"))
    if None in least:
        return ""
    times = [float(found.value_ns[low + side]) / least[side] for side in (0, 1)]
    by = " → ".join(dict.fromkeys(bound))
    return f"; ×{times[0]:.1f} → ×{times[1]:.1f} the least possible time ({by} bound)"


def _neighbours(found: Curves, low: int) -> tuple[bool, bool]:
    curve, last = found.index[low], len(found.index) - 1
    return (low > 0 and bool(found.index[low - 1] == curve)), (
        low + 2 <= last and bool(found.index[low + 2] == curve)
    )


def _row(found: Curves, cliff: Cliff, why: Explanation) -> dict[str, Any]:
    same = ("build", "build_id", "run_id", "experiment", "arm", "curve", "axis", "evidence")
    point = {name: found.rows[name][cliff.low].as_py() for name in same}
    place = (*(point[n] for n in same), cliff.before, cliff.after)
    head = f"{_AXIS.get(point['axis'], point['axis'])} {cliff.before}→{cliff.after}: ×{cliff.ratio:.2f}"
    return {
        **point,
        "cliff_id": hashlib.sha256(repr(place).encode()).hexdigest()[:16],
        "before": cliff.before,
        "after": cliff.after,
        "before_ns": cliff.before_ns,
        "after_ns": cliff.after_ns,
        "ratio": cliff.ratio,
        "trend_ratio": cliff.trend_ratio,
        "class": cliff.kind,
        "explanation": why.verdict,
        "explanation_evidence": why.evidence,
        "changed_fields": list(why.changed),
        "sentence": f"{head}; {why.words}{_distance(found, cliff.low)}",
        "measure_next": list(cliff.measure_next),
        "analysis_version": ANALYSIS_VERSION,
    }
