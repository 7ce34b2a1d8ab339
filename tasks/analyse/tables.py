"""The tables one side of an analysis consists of, and SQL over them without copying."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.tasks.sql import sql


class AnalysisError(TilewatchError):
    """Tables that cannot be analysed together; the message names what is wrong and where."""


@dataclass(frozen=True)
class RunTables:
    """Contract tables of one or more runs; ``alignments`` may be empty (the cpu agent has no tiling)."""

    runs: pa.Table
    captures: pa.Table
    points: pa.Table
    samples: pa.Table
    alignments: pa.Table

    def only(self, column: str, values: Sequence[str]) -> RunTables:
        """The rows of all five tables where ``column`` (``run_id``, ``build_id`` …) is one of ``values``."""
        wanted = pa.array(values, type=pa.string())
        kept = {f.name: _rows(getattr(self, f.name), column, wanted) for f in fields(self)}
        return RunTables(**kept)

    def asked_of(self, other: RunTables) -> RunTables:
        """The rows about what ``other`` planned: its experiments and, of those, its arms."""
        arms = other.points.group_by(list(_ARM)).aggregate([])
        mine = self.only("experiment", pc.unique(arms["experiment"]).to_pylist())
        parts = ("captures", "points", "samples", "alignments")
        kept = {name: _joined(getattr(mine, name), arms) for name in parts}
        return RunTables(runs=mine.runs, **kept)

    def distinct(self, column: str) -> tuple[str, ...]:
        """Sorted distinct values of a column of ``runs``."""
        return tuple(sorted(pc.unique(self.runs.column(column)).drop_null().to_pylist()))


def join(many: Sequence[RunTables]) -> RunTables:
    """All rows of ``many``; raises AnalysisError for none."""
    if not many:
        raise AnalysisError("no runs to analyse")
    return RunTables(
        **{
            f.name: pa.concat_tables([getattr(one, f.name) for one in many], promote_options="default")
            for f in fields(RunTables)
        }
    )


_ARM = ("experiment", "arm")


def _joined(table: pa.Table, arms: pa.Table) -> pa.Table:
    """Rows of ``table`` about one of ``arms``, in their order. SQL: Arrow joins take no nested columns."""
    found = sql(_OF_ARMS, {"rows": table.select(list(_ARM)), "arms": arms})
    return table.filter(found["kept"])


_OF_ARMS = """
SELECT a.arm IS NOT NULL AS kept FROM (SELECT *, row_number() OVER () AS place FROM rows) r
LEFT JOIN arms a USING (experiment, arm) ORDER BY place
"""


def _rows(table: pa.Table, column: str, wanted: pa.Array) -> pa.Table:
    return table.filter(pc.is_in(table.column(column), value_set=wanted))
