"""analysis.db of torch_npu: the step trace of a database export. Its numbers are microseconds as doubles."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tilewatch.data_contracts import schema
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular import cells
from tilewatch.tasks.read.tabular.constants import Constants
from tilewatch.tasks.read.tabular.layout import Kind
from tilewatch.tasks.read.tabular.sqlite_file import columns_of, first_of, open_immutable

_TABLE = "StepTraceTime"
_TIMES = {
    "computing_ns": "computing",
    "communication_ns": "communication",
    "communication_not_overlapped_ns": "communication_not_overlapped",
    "overlapped_ns": "overlapped",
    "free_ns": "free",
    "stage_ns": "stage",
    "bubble_ns": "bubble",
    "communication_without_receive_ns": "communication_not_overlapped_and_exclude_receive",
    "preparing_ns": "preparing",
}


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``steps`` from table StepTraceTime. A file without it gives no rows and one refusal."""
    name = source_file or path.name
    refusals: list[Refusal] = []
    table = schema("steps").empty_table()
    try:
        with open_immutable(path) as connection:
            if columns_of(connection, _TABLE):
                table = _steps(connection, Constants(origin, name), refusals, name)
            else:
                refusals.append(Refusal(name, None, "schema", f"no table {_TABLE}"))
    except sqlite3.Error as error:
        refusals.append(Refusal(name, None, "database", f"the database cannot be read: {error}"))
    return ReadResult(table, refused_rows(origin, "steps", refusals), {"rows": table.num_rows})


def _steps(
    connection: sqlite3.Connection, constants: Constants, refusals: list[Refusal], source_file: str
) -> pa.Table:
    present = columns_of(connection, _TABLE)
    selected = ["deviceId", "step", *_TIMES.values()]
    query = ", ".join(f"CAST({first_of(present, (column,), 't')} AS TEXT)" for column in selected)
    rows = connection.execute(f"SELECT t.rowid, {query} FROM {_TABLE} t ORDER BY t.rowid").fetchall()
    texts: list[Any] = list(zip(*rows, strict=True)) or [()] * (len(selected) + 1)
    kinds = dict.fromkeys(("device_id", "step_id"), Kind.INTEGER) | dict.fromkeys(_TIMES, Kind.DURATION)
    columns: dict[str, pa.Array] = {}
    good = np.ones(len(rows), dtype=np.bool_)
    for (column, kind), text in zip(kinds.items(), texts[1:], strict=True):
        columns[column], bad = cells.typed(pa.array(text, type=pa.string()), kind)
        for row in np.flatnonzero(bad).tolist():
            reason = f"{column}: expected {kind.value}, found {text[row]!r}"
            raw = repr(rows[row])
            refusals.append(
                Refusal(source_file, int(texts[0][row]), "cell_type", reason, column, text[row], raw)
            )
        good &= ~bad
    columns |= constants.columns(len(rows))
    columns["row_index"] = pa.array(np.arange(len(rows), dtype=np.int64))
    columns["source_line"] = pa.array(texts[0], type=pa.int64())
    spec = schema("steps")
    arrays = [columns[f.name] if f.name in columns else pa.nulls(len(rows), f.type) for f in spec]
    return pa.Table.from_arrays(arrays, schema=spec).filter(pa.array(good))
