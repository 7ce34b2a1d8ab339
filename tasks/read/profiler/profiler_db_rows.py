"""Queries behind ``profiler_db``: kernels, communication operators, counters, damaged rows, as columns."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tilewatch.tasks.read.quarantine import Refusal
from tilewatch.tasks.read.tabular.sqlite_file import columns_of, fetch_columns, first_of

IntArray = npt.NDArray[np.int64]

_NO_CONTEXT = 4294967295
_NODE_LAUNCH = 10000
_TEXTS = {
    "name": ("name",),
    "op_type": ("opType",),
    "task_type": ("taskType",),
    "input_shapes": ("inputShapes",),
    "input_dtypes": ("inputDataTypes",),
    "input_formats": ("inputFormats",),
    "output_shapes": ("outputShapes",),
    "output_dtypes": ("outputDataTypes",),
    "output_formats": ("outputFormats",),
}
_BLOCK_DIM = ("blockNum", "blockDim", "block_dim")
_MIX_BLOCK_DIM = ("mixBlockNum", "mixBlockDim", "mix_block_dim")
_INTEGERS = (
    "row_id", "global_task_id", "device_id", "stream_id", "task_id", "context_id",
    "block_dim", "mix_block_dim", "wait_ns", "host_enqueue_ns",
)  # fmt: skip
_GOOD = """typeof(t.startNs) = 'integer' AND typeof(t.endNs) = 'integer' AND t.endNs >= t.startNs
    AND EXISTS (SELECT 1 FROM STRING_IDS s WHERE s.id = c.name)"""


@dataclass(frozen=True)
class KernelColumns:
    """Kernel rows column by column: string ids in ``texts``, ``strings`` as sorted ids with their values."""

    start: IntArray
    duration: IntArray
    integers: dict[str, pa.Array]
    texts: dict[str, pa.Array]
    strings: tuple[IntArray, pa.Array]


def kernel_columns(connection: sqlite3.Connection) -> KernelColumns:
    """Computing kernels by start time, then communication operators, which have no global task id."""
    names = ("start", "end", *_INTEGERS, *_TEXTS)
    parts: dict[str, list[Any]] = {name: [] for name in names}
    for query in (_computing_query(connection), _communication_query(connection)):
        for columns in fetch_columns(connection, query) if query else ():
            for name, values in zip(names, columns, strict=True):
                parts[name].append(pa.array(values, type=pa.int64()))
    whole = {name: _concat(arrays) for name, arrays in parts.items()}
    start = whole["start"].to_numpy(zero_copy_only=False)
    duration = whole["end"].to_numpy(zero_copy_only=False) - start
    return KernelColumns(
        start.astype(np.int64),
        duration.astype(np.int64),
        {name: whole[name] for name in _INTEGERS},
        {name: whole[name] for name in _TEXTS},
        _strings(connection),
    )


def _concat(arrays: list[pa.Array]) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], type=pa.int64())


def _strings(connection: sqlite3.Connection) -> tuple[IntArray, pa.Array]:
    rows = connection.execute(
        "SELECT id, CAST(value AS TEXT) FROM STRING_IDS WHERE typeof(id) = 'integer' ORDER BY id"
    ).fetchall()
    ids = np.fromiter((row[0] for row in rows), dtype=np.int64, count=len(rows))
    return ids, pa.array([row[1] for row in rows], type=pa.string())


def _computing_query(connection: sqlite3.Connection) -> str:
    info, task = columns_of(connection, "COMPUTE_TASK_INFO"), columns_of(connection, "TASK")
    block = first_of(info, _BLOCK_DIM, "c")
    mix = first_of(info, _MIX_BLOCK_DIM, "c")
    texts = ", ".join(first_of(info, column, "c") for column in _TEXTS.values())
    has_host = {"connectionId", "startNs"} <= columns_of(connection, "CANN_API") and "connectionId" in task
    host = "h.startNs" if has_host else "NULL"
    launches = f"""LEFT JOIN (SELECT connectionId, min(startNs) AS startNs FROM CANN_API
        WHERE type = {_NODE_LAUNCH} GROUP BY connectionId) h ON h.connectionId = t.connectionId"""
    return f"""SELECT t.startNs, t.endNs, t.rowid, t.globalTaskId, t.deviceId, t.streamId, t.taskId,
        nullif(t.contextId, {_NO_CONTEXT}), nullif({block}, 0), CASE WHEN {block} > 0 THEN {mix} END,
        {first_of(info, ("waitNs",), "c")}, {host}, {texts}
        FROM COMPUTE_TASK_INFO c JOIN TASK t ON t.globalTaskId = c.globalTaskId
        {launches if has_host else ""} WHERE {_GOOD} ORDER BY t.startNs, t.rowid"""


def _communication_query(connection: sqlite3.Connection) -> str | None:
    present = columns_of(connection, "COMMUNICATION_OP")
    if not {"opName", "startNs", "endNs"} <= present:
        return None
    op_type = first_of(present, ("opType",), "o")
    return f"""SELECT o.startNs, o.endNs, o.rowid, NULL, {first_of(present, ("deviceId",), "o")}, NULL, NULL,
        NULL, NULL, NULL, {first_of(present, ("waitNs",), "o")}, NULL, o.opName, {op_type},
        NULL, NULL, NULL, NULL, NULL, NULL, NULL
        FROM COMMUNICATION_OP o JOIN STRING_IDS s ON s.id = o.opName
        WHERE typeof(o.startNs) = 'integer' AND typeof(o.endNs) = 'integer' AND o.endNs >= o.startNs
        ORDER BY o.startNs, o.rowid"""


def kernel_counters(
    connection: sqlite3.Connection, columns: KernelColumns
) -> tuple[list[str], list[pa.Array]]:
    """Counters of every kernel under the names of the CSVs, a column each; times in µs as there."""
    if not columns_of(connection, "TASK_PMU_INFO"):
        return [], []
    query = """SELECT p.globalTaskId, s.value, p.value FROM TASK_PMU_INFO p JOIN STRING_IDS s ON s.id = p.name
        WHERE typeof(p.value) IN ('integer', 'real') AND typeof(p.globalTaskId) = 'integer'"""
    ids = columns.integers["global_task_id"].fill_null(-1).to_numpy(zero_copy_only=False)
    order = np.argsort(ids, kind="stable")
    values: dict[str, npt.NDArray[np.float64]] = {}
    for task, name, value in fetch_columns(connection, query):
        wanted = np.asarray(task, dtype=np.int64)
        at = np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)
        names = np.asarray(name)
        for counter in np.unique(names):
            mine = (names == counter) & (ids[order[at]] == wanted)
            column = values.setdefault(str(counter), np.full(len(ids), np.nan))
            column[order[at[mine]]] = np.asarray(value, dtype=np.float64)[mine]
    named = {_csv_name(name): v / 1000 if name.endswith("_time") else v for name, v in values.items()}
    return list(named), [pa.array(column) for column in named.values()]


def _csv_name(name: str) -> str:
    if name == "aic_total_time":
        return "aicore_time(us)"
    if name == "aiv_total_time":
        return "aiv_time(us)"
    return f"{name}(us)" if name.endswith("_time") else name


def refused_tasks(connection: sqlite3.Connection, source_file: str) -> list[Refusal]:
    """Kernels without a task row, and those whose times or name are no times and no name."""
    query = f"""SELECT t.rowid, c.globalTaskId, c.name, t.startNs, t.endNs
        FROM COMPUTE_TASK_INFO c LEFT JOIN TASK t ON t.globalTaskId = c.globalTaskId
        WHERE t.rowid IS NULL OR NOT ({_GOOD})"""
    return [
        Refusal(
            source_file,
            row_id,
            "database_row",
            f"kernel {task}: expected a name, a start and an end that follows it in one row of TASK",
            raw_text=f"globalTaskId={task} name={name} startNs={start} endNs={end}",
        )
        for row_id, task, name, start, end in connection.execute(query)
    ]
