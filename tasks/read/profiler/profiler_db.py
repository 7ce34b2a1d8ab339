"""ascend_pytorch_profiler*.db and msprof_*.db: kernels, counters and host launches of the SQLite exports.

Schemas 1.0.0 (blockDim) and 1.2.0 (blockNum) and files that a viewer has altered (block_dim, further columns
and tables). Times are ns; texts are ids into STRING_IDS; counters come one a row, their times in ns too.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import schema
from tilewatch.tasks.read.kernels.aiv_aic import aiv_aic_ratio
from tilewatch.tasks.read.kernels.counters import counter_maps
from tilewatch.tasks.read.kernels.kernel_categories import categories, other_share
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.profiler_db_rows import (
    KernelColumns,
    kernel_columns,
    kernel_counters,
    refused_tasks,
)
from tilewatch.tasks.read.profiler.timeline import NEGATIVE_LATENCY
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.constants import Constants
from tilewatch.tasks.read.tabular.layout import NULL_TOKENS
from tilewatch.tasks.read.tabular.sqlite_file import columns_of, open_immutable, unread_log_bytes
from tilewatch.tasks.read.tabular.tensor_lists import SHAPE_FORM, shapes, words

_NEEDED = ("TASK", "COMPUTE_TASK_INFO", "STRING_IDS")
_UNREADABLE = "unreadable_shape"
_FLAGS = pa.array(
    [None, [NEGATIVE_LATENCY], [_UNREADABLE], [NEGATIVE_LATENCY, _UNREADABLE]], type=pa.list_(pa.string())
)


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``kernels`` from one database, communication operators behind the computing ones.

    ``source_line`` is the row id in TASK or COMMUNICATION_OP. A file that is no database, or has no kernel
    tables, gives no rows and one refusal. A shape that cannot be read is null and flagged.
    """
    name = source_file or path.name
    refusals: list[Refusal] = []
    facts: dict[str, Any] = {"unread_log_bytes": unread_log_bytes(path)}
    table = schema("kernels").empty_table()
    try:
        with open_immutable(path) as connection:
            facts |= _schema_facts(connection)
            missing = [needed for needed in _NEEDED if not columns_of(connection, needed)]
            if missing:
                reason = f"no table {', '.join(missing)}: not a kernel database"
                refusals.append(Refusal(name, None, "schema", reason))
            else:
                refusals += refused_tasks(connection, name)
                columns = kernel_columns(connection)
                table = _kernels(columns, kernel_counters(connection, columns), Constants(origin, name))
    except (sqlite3.Error, pa.ArrowException, OverflowError) as error:
        refusals.append(Refusal(name, None, "database", f"the database cannot be read: {error}"))
    facts |= {"rows": table.num_rows, "refused": len(refusals), "other_share": other_share(table)}
    return ReadResult(table, refused_rows(origin, "kernels", refusals), facts)


def _schema_facts(connection: sqlite3.Connection) -> dict[str, Any]:
    facts: dict[str, Any] = {"viewer_modified": bool(columns_of(connection, "status_info"))}
    if columns_of(connection, "META_DATA"):
        query = "SELECT value FROM META_DATA WHERE name = 'SCHEMA_VERSION'"
        facts["schema_version"] = next((value for (value,) in connection.execute(query)), None)
    return facts


def _kernels(
    columns: KernelColumns, counters: tuple[list[str], list[pa.Array]], constants: Constants
) -> pa.Table:
    rows = len(columns.start)
    result: dict[str, pa.Array] = constants.columns(rows)
    result["kernel_index"] = pa.array(np.arange(rows, dtype=np.int64))
    result["source_line"] = columns.integers["row_id"]
    result |= {name: v for name, v in columns.integers.items() if name not in ("row_id", "global_task_id")}
    texts = {name: _text(ids, columns.strings) for name, ids in columns.texts.items()}
    for name in ("name", "op_type", "task_type"):
        result[name] = texts[name].cast(pa.string())
    communication = columns.integers["global_task_id"].is_null()
    result["task_type"] = pc.if_else(communication, pa.scalar("COMMUNICATION"), result["task_type"])
    for name in ("input_dtypes", "input_formats", "output_dtypes", "output_formats"):
        result[name] = words(texts[name])
    unreadable = pc.or_(*(_misshapen(texts[name]) for name in ("input_shapes", "output_shapes")))
    inputs, outputs = (shapes(_readable(texts[name])) for name in ("input_shapes", "output_shapes"))
    result["input_shapes"], result["output_shapes"] = inputs.values, outputs.values
    result["category"] = categories(result["op_type"], result["name"], inputs.last_dim, outputs.last_dim)
    blocks, mix = (columns.integers[key] for key in ("block_dim", "mix_block_dim"))
    result["aiv_aic_ratio"] = aiv_aic_ratio(result["task_type"], _counts(blocks), _counts(mix))
    result["start_ns"] = pa.array(columns.start)
    result["duration_ns"] = pa.array(columns.duration)
    latency = pc.subtract(result["start_ns"], result["host_enqueue_ns"])
    result["launch_latency_ns"] = latency
    negative = pc.fill_null(pc.less(latency, 0), False)
    odd = pc.add(negative.cast(pa.int8()), pc.multiply(unreadable.cast(pa.int8()), pa.scalar(2, pa.int8())))
    result["flags"] = _FLAGS.take(odd)
    names, values = counters
    if names:
        result["metrics"] = counter_maps(names, values, result["task_type"])
    spec = schema("kernels")
    arrays = [result[f.name] if f.name in result else pa.nulls(rows, f.type) for f in spec]
    return pa.Table.from_arrays([a.cast(f.type) for a, f in zip(arrays, spec, strict=True)], schema=spec)


def _text(ids: pa.Array, strings: tuple[npt.NDArray[np.int64], pa.Array]) -> pa.DictionaryArray:
    """Texts of string ids; an unknown id and the text ``N/A`` are no value."""
    known, values = strings
    if not len(known):
        return pa.nulls(len(ids), pa.string()).dictionary_encode()
    wanted = pc.fill_null(ids, -1).to_numpy(zero_copy_only=False)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    texts = values.take(pa.array(at, mask=known[at] != wanted))
    absent = pc.is_in(texts, value_set=pa.array(NULL_TOKENS))
    return pc.if_else(absent, pa.scalar(None, pa.string()), texts).dictionary_encode()


def _misshapen(cells: pa.DictionaryArray) -> pa.Array:
    """Mask of the rows whose shape text is none."""
    fits = pc.match_substring_regex(cells.dictionary, f"^(?:{SHAPE_FORM})$")
    return pc.fill_null(pc.invert(fits).take(cells.indices), False)


def _readable(cells: pa.DictionaryArray) -> pa.DictionaryArray:
    texts = cells.cast(pa.string())
    return pc.if_else(_misshapen(cells), pa.scalar(None, pa.string()), texts).dictionary_encode()


def _counts(values: pa.Array) -> npt.NDArray[np.int64]:
    counts: npt.NDArray[np.int64] = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    return counts
