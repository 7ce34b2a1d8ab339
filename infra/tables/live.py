"""Tables for a server that answers many readers: opened once, looked at again when they may have changed.

A table that fits is kept in memory without its maps; of a larger one Arrow reads what is asked for, columns
and rows. What is older than ``PATIENCE_S`` when it is asked for is given once more, while a newer commit is
loaded beside the answer, so that nobody waits for it.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tilewatch.data_contracts import schema, table_names
from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.infra.tables.query import Limits, Session, named_tables, run
from tilewatch.infra.tables.store import TableStore

PATIENCE_S = 2.0
MEMORY_ROWS = 300_000
"""Tables with more rows stay in the store; the largest kept ones take some hundred bytes a row."""


@dataclass
class _Entry:
    version: int | None
    dataset: Any
    kept: pa.Table | None
    checked_s: float


class LiveTables:
    """Answers SQL over the tables of a store; safe to use from many threads."""

    def __init__(self, tables: TableStore, patience_s: float = PATIENCE_S) -> None:
        self._tables = tables
        self._patience_s = patience_s
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()
        self._loading: dict[str, threading.Lock] = {name: threading.Lock() for name in table_names()}
        self._sessions: queue.SimpleQueue[Session] = queue.SimpleQueue()
        self._background = ThreadPoolExecutor(2, thread_name_prefix="tables")

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Answer of one statement of ours. Raises QueryError, StoreError or TableError."""
        given = self._given(sql)
        try:
            session = self._sessions.get_nowait()
        except queue.Empty:
            session = Session()
        answer = session.run(sql, given, parameters)
        # A session whose query failed is not used again.
        self._sessions.put(session)
        return answer

    def query_of_a_reader(
        self, sql: str, limits: Limits, interruptible: Callable[[Callable[[], None]], None]
    ) -> pa.Table:
        """Answer of a statement that somebody wrote, within ``limits``; see ``infra.tables.query``."""
        return run(sql, self._given(sql), None, limits, interruptible)

    def counts(self) -> dict[str, int]:
        """How many rows each table has."""
        entries = self._background.map(lambda name: (name, self._entry(name)), table_names())
        return {
            name: int(e.dataset.count_rows() if e.kept is None else e.kept.num_rows) for name, e in entries
        }

    def _given(self, sql: str) -> dict[str, Any]:
        words = set(re.findall(r"\w+|\*", sql))
        return {name: self._rows(name, words) for name in named_tables(sql, table_names())}

    def close(self) -> None:
        """End the threads that load."""
        self._background.shutdown(wait=False, cancel_futures=True)

    def _rows(self, name: str, words: set[str]) -> Any:
        entry = self._entry(name)
        maps = {f.name for f in schema(name) if pa.types.is_map(f.type)}
        if entry.kept is None or maps & words or (maps and "*" in words):
            return entry.dataset
        return entry.kept

    def _entry(self, name: str) -> _Entry:
        entry = self._entries.get(name)
        if entry is None:
            with self._loading[name]:
                return self._entries.get(name) or self._load(name)
        if time.monotonic() - entry.checked_s > self._patience_s:
            entry.checked_s = time.monotonic()
            self._background.submit(self._renew, name, entry)
        return entry

    def _renew(self, name: str, old: _Entry) -> None:
        """Load a newer commit. A store that does not answer now is asked again by the next reader."""
        try:
            if self._tables.version(name) != old.version:
                self._load(name)
        except TilewatchError:
            old.checked_s = 0.0

    def _load(self, name: str) -> _Entry:
        version, dataset = self._tables.version(name), self._tables.dataset(name)
        plain = [f.name for f in schema(name) if not pa.types.is_map(f.type)]
        few = dataset.count_rows() <= MEMORY_ROWS
        kept = dataset.to_table(columns=plain) if few else None
        entry = _Entry(version, dataset, kept, time.monotonic())
        with self._lock:
            self._entries[name] = entry
        return entry
