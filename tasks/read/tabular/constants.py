"""Columns that hold one value, or none, in every row of a file, stored once whatever the number of rows."""

from __future__ import annotations

import pyarrow as pa

from tilewatch.tasks.read.origin import Origin


class Constants:
    """Identity columns of one file; blocks of any size share the same memory."""

    def __init__(self, origin: Origin, source_file: str) -> None:
        self._values: dict[str, str | int | None] = {**origin.columns(), "source_file": source_file}
        self._arrays: dict[str, pa.Array] = {}
        self._absent: dict[pa.DataType, pa.Array] = {}

    def columns(self, rows: int) -> dict[str, pa.Array]:
        """The identity and ``source_file`` as arrays of ``rows`` equal values."""
        # A local name: other threads may put shorter arrays into their place meanwhile.
        arrays = self._arrays
        if not arrays or len(arrays["run_id"]) < rows:
            arrays = {name: _repeat(name, value, rows) for name, value in self._values.items()}
            self._arrays = arrays
        return {name: array.slice(0, rows) for name, array in arrays.items()}

    def absent(self, kind: pa.DataType, rows: int) -> pa.Array:
        """A column of ``rows`` nulls."""
        nulls = self._absent.get(kind)
        if nulls is None or len(nulls) < rows:
            nulls = self._absent[kind] = pa.nulls(rows, kind)
        return nulls.slice(0, rows)


def _repeat(name: str, value: str | int | None, rows: int) -> pa.Array:
    if name == "process_index":
        return pa.repeat(pa.scalar(value, pa.int64()), rows)
    return pa.repeat(pa.scalar(value, pa.string()), rows)
