"""The tables one side of an analysis consists of, and SQL over them without copying."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts.errors import TilewatchError


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


def _rows(table: pa.Table, column: str, wanted: pa.Array) -> pa.Table:
    return table.filter(pc.is_in(table.column(column), value_set=wanted))
