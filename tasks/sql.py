"""SQL over Arrow tables in memory, for every stage that joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import duckdb
import pyarrow as pa


def sql(query: str, tables: Mapping[str, pa.Table], parameters: Sequence[object] = ()) -> pa.Table:
    """Result of ``query`` over Arrow tables by name; in memory, nothing is written or fetched."""
    with _database().cursor() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        result: pa.Table = connection.sql(query, params=list(parameters)).to_arrow_table()
        return result


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One empty in-memory database: opening it takes longer than most queries here."""
    return duckdb.connect()
