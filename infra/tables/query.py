"""SQL over the tables with DuckDB. It reads the tables and nothing else: no file, no network, no variable."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Limits:
    """What one query may take; None sets no limit."""

    seconds: float | None = None
    rows: int | None = None
    memory: str | None = None
    """As DuckDB writes it, for example ``512MB``."""


NO_LIMITS = Limits()


def named_tables(sql: str, known: Iterable[str]) -> list[str]:
    """The tables that ``sql`` can be about: those it names; all where it names none (``SHOW TABLES``)."""
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    names = sorted(known)
    return [name for name in names if name in words] or names


class Session:
    """One sealed connection, used again and again by one caller at a time, over tables that may change."""

    def __init__(self, threads: int = 1) -> None:
        self._connection = duckdb.connect(config={"threads": threads})
        self._given: dict[str, Any] = {}
        self._sealed = False

    def run(
        self, sql: str, tables: Mapping[str, Any], parameters: Mapping[str, Any] | None = None
    ) -> pa.Table:
        """Answer of one reading statement; see ``run``. Raises QueryError with DuckDB's message."""
        for name, data in tables.items():
            if self._given.get(name) is not data:
                self._connection.register(name, data)
                self._given[name] = data
        if not self._sealed:
            _seal(self._connection)
            self._sealed = True
        return _answer(self._connection, sql, parameters, NO_LIMITS)


def run(
    sql: str,
    tables: Mapping[str, Any],
    parameters: Mapping[str, Any] | None = None,
    limits: Limits = NO_LIMITS,
    interruptible: Callable[[Callable[[], None]], None] = lambda interrupt: None,
) -> pa.Table:
    """Answer of one reading statement over ``tables`` (name to Arrow table or dataset).

    ``parameters`` fill ``$name``. ``interruptible`` is handed a function that ends the query from another
    thread. Of more than ``limits.rows`` rows one more than these is given, which says that there are more.
    Raises QueryError with DuckDB's message.
    """
    connection = duckdb.connect()
    try:
        for name, data in tables.items():
            connection.register(name, data)
        if limits.memory:
            connection.execute(f"SET memory_limit = '{limits.memory}'")
            connection.execute("SET temp_directory = ''")
        _seal(connection)
        interruptible(connection.interrupt)
        return _answer(connection, sql, parameters, limits)
    finally:
        connection.close()


def _seal(connection: duckdb.DuckDBPyConnection) -> None:
    for option, value in _SEALED.items():
        connection.execute(f"SET {option} = {value}")


def _answer(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Mapping[str, Any] | None, limits: Limits
) -> pa.Table:
    wanted = {name: value for name, value in (parameters or {}).items() if f"${name}" in sql}
    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type not in _READING:
            raise QueryError("a query is one statement that reads: SELECT, WITH, SHOW, DESCRIBE or EXPLAIN")
        with _ended_after(connection, limits.seconds):
            answer = connection.sql(sql, params=wanted) if wanted else connection.sql(sql)
            if limits.rows is not None:
                answer = answer.limit(limits.rows + 1)
            return answer.to_arrow_table()
    except duckdb.InterruptException:
        after = f" after {limits.seconds:g} s" if limits.seconds else ""
        hint = "Ask for less: name columns, filter, or LIMIT"
        raise QueryError(f"the query was ended{after}", hint) from None
    except duckdb.Error as error:
        known = connection.sql("SHOW TABLES").fetchall()
        names = ", ".join(sorted(name for (name,) in known))
        raise QueryError(str(error).rstrip(), f"Tables: {names}") from None


@contextmanager
def _ended_after(connection: duckdb.DuckDBPyConnection, seconds: float | None) -> Iterator[None]:
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
