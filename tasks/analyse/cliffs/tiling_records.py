"""Tiling records beside the points of a curve, and the unit counts that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.analyse.cliffs.steps import Mask
from tilewatch.tasks.plan.kernel_types import DYNAMIC_QUANT, GROUPED_MATMUL, MATMUL, QUANT_MATMUL
from tilewatch.tasks.sql import sql

STRUCTURE = (
    "kernel_op_type", "tiling_key", "base_m", "base_n", "base_k", "stream_k", "single_n", "aiv_aic_ratio"
)  # fmt: skip
"""What the host tiling chose; a change of any of these changes how the work is cut or which kernel runs."""

FAMILIES = (DYNAMIC_QUANT, QUANT_MATMUL, GROUPED_MATMUL, MATMUL)
"""Operator types that are one kernel under several names: profiler and log need not agree on the version."""

SCALED = ("block_dim", "used_core_num")
"""Counts that may simply grow with the axis: a cause only where they do not also change next to it."""

_JOINED = """
SELECT {columns} FROM (SELECT *, row_number() OVER () AS place FROM rows) r
LEFT JOIN records a USING (experiment, arm, point_id) ORDER BY place
"""

_OTHERS = """
SELECT t.experiment, t.arm, t.point_id, t.op_type, t.op_type AS kernel_op_type,
       any_value(t.tiling_key) AS tiling_key,
       any_value(t.base_m) AS base_m, any_value(t.base_n) AS base_n, any_value(t.base_k) AS base_k,
       any_value(t.stream_k) AS stream_k, any_value(t.aiv_aic_ratio) AS aiv_aic_ratio,
       any_value(t.single_n) AS single_n,
       any_value(t.block_dim) AS block_dim, any_value(t.used_core_num) AS used_core_num,
       any_value(t.fields) AS fields
FROM tilings t JOIN alignments a USING (run_id, experiment, arm, point_id)
LEFT JOIN families own ON own.op_type = t.op_type LEFT JOIN families main ON main.op_type = a.kernel_op_type
WHERE a.status = 'aligned' AND a.kernel_op_type IS NOT NULL
    AND coalesce(own.family, t.op_type) <> coalesce(main.family, a.kernel_op_type)
GROUP BY ALL HAVING count(DISTINCT (t.tiling_key, t.base_m, t.base_n, t.base_k, t.block_dim)) = 1
"""


@dataclass(frozen=True)
class Records:
    """Tiling records aligned with the rows of a curve; null where a point has none."""

    evidence: str
    table: pa.Table

    def known(self, low: int) -> bool:
        """True where both sides of the step from row ``low`` have a record."""
        return self._valid(low, "tiling_key", "base_m", "block_dim")

    def tiled(self, low: int) -> bool:
        """True where both sides know more than the blocks launched, which a profiler tells without a log."""
        return self._valid(low, "tiling_key", "base_m")

    def _valid(self, low: int, *names: str) -> bool:
        return all(any(self.table[name][row].is_valid for name in names) for row in (low, low + 1))

    def structure_changes(self) -> Mask:
        """For each row: whether STRUCTURE differs, known on both sides, between it and the next row."""
        changed = np.zeros(self.table.num_rows, dtype=bool)
        for name in STRUCTURE:
            column = self.table[name].combine_chunks()
            differs = pc.fill_null(pc.not_equal(column[:-1], column[1:]), False)
            changed[:-1] |= differs.to_numpy(zero_copy_only=False)
        return changed


def observed(rows: pa.Table, alignments: pa.Table) -> Records:
    """Observed records of ``alignments`` (one run) for the rows of ``curves``."""
    return Records("observed", _beside(rows, alignments))


def predicted(rows: pa.Table, predictions: pa.Table) -> Records:
    """Predicted records: a table with experiment, arm, point_id and the tiling columns of alignments."""
    return Records("predicted", _beside(rows, predictions))


def of_other_kernels(rows: pa.Table, alignments: pa.Table, tilings: pa.Table) -> dict[str, Records]:
    """Observed records of what a call runs beside its main kernel, by operator type, for the rows of a curve.

    ``tilings`` are those of one run; a type that shows different records for one point has none there.
    """
    families = pa.table(
        {
            "op_type": [name for names in FAMILIES for name in names],
            "family": [names[0] for names in FAMILIES for _ in names],
        }
    )
    found = sql(_OTHERS, {"tilings": tilings, "alignments": alignments, "families": families})
    types = sorted(pc.unique(found["op_type"]).to_pylist())
    return {
        op_type: Records("observed", _beside(rows, found.filter(pc.equal(found["op_type"], op_type))))
        for op_type in types
    }


def _beside(rows: pa.Table, records: pa.Table) -> pa.Table:
    wanted = ("status", "reason", "agent", *STRUCTURE, *SCALED, "fields")
    columns = ", ".join(
        f"a.{name}::VARCHAR AS {name}" if name in records.column_names and name != "fields"
        else f"a.{name}" if name in records.column_names else f"NULL::VARCHAR AS {name}"
        for name in wanted
    )  # fmt: skip
    keys = rows.select(["experiment", "arm", "point_id"])
    return sql(_JOINED.format(columns=columns), {"rows": keys, "records": records})


def field_changes(records: Records, low: int, same_curve: tuple[bool, bool]) -> dict[str, tuple[str, str]]:
    """Tiling fields that differ between rows ``low`` and ``low + 1``, as name → (before, after).

    ``same_curve`` says whether the rows before and after the pair belong to its curve. A scaled count or an
    operator's own field that also changes at every neighbouring step moves with the axis and is left out.
    """
    sides = [_values(records, low), _values(records, low + 1)]
    beside = []
    if same_curve[0]:
        beside.append((_values(records, low - 1), sides[0]))
    if same_curve[1]:
        beside.append((sides[1], _values(records, low + 2)))
    changes = {}
    for name in sides[0].keys() & sides[1].keys():
        old, new = sides[0][name], sides[1][name]
        moves = bool(beside) and all(a.get(name) != b.get(name) for a, b in beside)
        if old != new and (name in STRUCTURE or not moves):
            changes[name] = (old, new)
    order = {name: place for place, name in enumerate(STRUCTURE + SCALED)}
    return dict(sorted(changes.items(), key=lambda item: (order.get(item[0], len(order)), item[0])))


def _values(records: Records, row: int) -> dict[str, str]:
    record = {name: records.table[name][row].as_py() for name in STRUCTURE + SCALED}
    own = {f"{name}": value for name, value in (records.table["fields"][row].as_py() or ())}
    return {name: value for name, value in {**own, **record}.items() if value is not None}


def unit_counts(records: Records, row: int, point: Mapping[str, Any]) -> dict[str, int]:
    """Blocks along M of the fullest expert (or of the matrix), blocks in all, rounds over the cores.

    blocks = Σ over experts ⌈M_e/base_m⌉ · ⌈N/base_n⌉ and rounds = ⌈blocks/cores⌉; DynamicQuant deals out
    rows instead: rows per core = ⌈M/cores⌉. What the record does not hold leaves its counts out.
    """
    values = _values(records, row)
    base_m, base_n = (int(values.get(name, 0)) for name in ("base_m", "base_n"))
    cores = int(values.get("used_core_num") or values.get("block_dim") or 0)
    grouped = bool(point["group_list"]) or point["m_e"] is not None
    per_expert = [int(m) for m in point["group_list"] or [point["max_m_e"] or point["m_e"] or point["m"]]]
    counts: dict[str, int] = {}
    if cores and values.get("kernel_op_type") in DYNAMIC_QUANT:
        counts["rows per core"] = -(-int(point["m"]) // cores)
    if base_m:
        blocks = [-(-m // base_m) for m in per_expert]
        counts["blocks per expert" if grouped else "blocks along M"] = max(blocks)
        if base_n and point["n"]:
            total = sum(blocks) * -(-int(point["n"]) // base_n)
            counts["blocks"] = total
            if cores:
                counts["rounds"] = -(-total // cores)
    return counts
