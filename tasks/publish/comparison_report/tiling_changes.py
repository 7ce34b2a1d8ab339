"""Observed tiling on both sides of a compared point: what changed, in words."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.publish.run_report.bands import SHOWN, Row

Key = tuple[str, str, str]
MAIN = ""
"""Stands for the main operator where only ``alignments`` tell of it."""


class TilingChanges:
    """Looks compared points up in what both sides observed: every operator of a call, or its main one."""

    def __init__(self, alignments: pa.Table, tilings: pa.Table) -> None:
        aligned = alignments.filter(pc.equal(alignments["status"], "aligned"))
        self._main = {_key(row): {MAIN: row} for row in _rows(aligned)}
        self._every: dict[Key, dict[str, Row]] = {}
        for row in _rows(tilings.filter(pc.is_valid(tilings["point_id"])), "op_type"):
            if _key(row) in self._main:
                self._every.setdefault(_key(row), {})[row["op_type"]] = row

    def of(self, row: Row) -> str:
        """Fields that differ, as ``base_m 128 → 64``; empty where none does or a side was not observed.

        Where a call has several operators each is named before its own fields.
        """
        base = self._side(row["base_run_ids"], row["base_arm"], row["point_id"])
        candidate = self._side(row["candidate_run_ids"], row["candidate_arm"], row["point_id"])
        parts = []
        for operator, old in sorted(base.items()):
            new = candidate.get(operator, old)
            fields = [f"{name} {old[name]} → {new[name]}" for name in SHOWN if old[name] != new[name]]
            if fields:
                parts.append(f"{operator} " * (len(base) > 1) + ", ".join(fields))
        return "; ".join(parts)

    def _side(self, run_ids: list[str], arm: str, point_id: str) -> Mapping[str, Row]:
        for run in reversed(run_ids):
            for known in (self._every, self._main):
                if found := known.get((run, arm, point_id)):
                    return found
        return {}


def _key(row: Row) -> Key:
    return row["run_id"], row["arm"], row["point_id"]


def _rows(table: pa.Table, *more: str) -> list[Row]:
    rows: list[Row] = table.select(["run_id", "arm", "point_id", *SHOWN, *more]).to_pylist()
    return rows
