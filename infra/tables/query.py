"""SQL over the tables with DuckDB. It reads the tables and nothing else: no file, no network, no variable."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb
import pyarrow as pa

from tilewatch.infra.errors import QueryError

# Extensions come from a server on the internet, and only a closed configuration stays closed.
_SEALED = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "enable_external_access": "false",
    "lock_configuration": "true",
}
_READING = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}


def named_tables(sql: str, known: Iterable[str]) -> list[str]:
    """The tables that ``sql`` can be about: those it names; all where it names none (``SHOW TABLES``)."""
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    names = sorted(known)
    return [name for name in names if name in words] or names


def run(sql: str, tables: Mapping[str, Any]) -> pa.Table:
    """Answer of one reading statement over ``tables`` (name to Arrow table or dataset).

    Raises QueryError with DuckDB's own message.
    """
    connection = duckdb.connect()
    try:
        for name, data in tables.items():
            connection.register(name, data)
        for option, value in _SEALED.items():
            connection.execute(f"SET {option} = {value}")
        statements = connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type not in _READING:
            raise QueryError("a query is one statement that reads: SELECT, WITH, SHOW, DESCRIBE or EXPLAIN")
        return connection.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        raise QueryError(str(error).rstrip(), f"Tables: {', '.join(tables)}") from None
    finally:
        connection.close()
