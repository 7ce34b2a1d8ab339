"""SQLite exports opened immutable: nothing is written beside them; their schema is asked, not assumed.

A file can hold more than data: a view in the place of a table runs a query of its maker's, a column may be
computed by one. Functions in a schema are not trusted, views are no tables, and no value is longer than a
kernel's name or shapes can be.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

_FETCH_ROWS = 50_000
MOST_VALUE_BYTES = 16 << 20


@contextmanager
def open_immutable(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection that takes no lock and creates no side file. Raises sqlite3.DatabaseError.

    Texts that are not UTF-8 are read with U+FFFD; a damaged file may even spoil SQLite's own messages.
    """
    address = f"file:{quote(str(path.resolve()))}?immutable=1&mode=ro"
    connection = sqlite3.connect(address, uri=True)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield connection
    except UnicodeDecodeError as error:
        raise sqlite3.DatabaseError(f"damaged: {error}") from error
    finally:
        connection.close()


def columns_of(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    """Names of a table's stored columns, empty where there is no such table; a view is none."""
    query = (
        "SELECT name FROM pragma_table_info(?1) WHERE EXISTS (SELECT 1 FROM sqlite_master "
        "WHERE type = 'table' AND name = ?1 COLLATE NOCASE AND rootpage > 0)"
    )
    rows = connection.execute(query, (table,)).fetchall()
    return frozenset(str(name) for (name,) in rows)


def first_of(present: frozenset[str], names: Sequence[str], alias: str) -> str:
    """SQL for the first of several names a column has had, NULL where the table has none of them."""
    return next((f'{alias}."{name}"' for name in names if name in present), "NULL")


def fetch_columns(
    connection: sqlite3.Connection, query: str, parameters: tuple[Any, ...] = ()
) -> Iterator[list[tuple[Any, ...]]]:
    """Results of a query as columns, a bounded number of rows at a time."""
    cursor = connection.execute(query, parameters)
    while rows := cursor.fetchmany(_FETCH_ROWS):
        yield list(zip(*rows, strict=True))


def unread_log_bytes(path: Path) -> int:
    """Size of a write-ahead log beside the file, whose rows an immutable connection does not see."""
    log = path.with_name(path.name + "-wal")
    return log.stat().st_size if log.is_file() else 0
