"""Run and build that a validation belongs to, for tables that do not say it themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

UNKNOWN_BUILD = "unknown"


@dataclass(frozen=True)
class Context:
    """``run_id`` is None and ``build`` "unknown" where the tables name none or several."""

    run_id: str | None
    build: str


def context_of(tables: Mapping[str, pa.Table]) -> Context:
    """The one run and the one build that all tables together name."""
    return Context(_only(tables, "run_id"), _only(tables, "build") or UNKNOWN_BUILD)


def _only(tables: Mapping[str, pa.Table], column: str) -> str | None:
    found = {
        value
        for table in tables.values()
        if column in table.column_names
        for value in pc.unique(table[column]).drop_null().to_pylist()
    }
    return str(found.pop()) if len(found) == 1 else None
