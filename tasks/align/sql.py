"""SQL over Arrow tables in memory."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa


def run(query: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Result of ``query``; ``tables`` are known by name and are not copied."""
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        result: pa.Table = connection.sql(query).to_arrow_table()
        return result
