"""Kernel rows of msprof and torch_npu CSVs as the contract ``kernels``, under whatever header they came."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
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
from tilewatch.tasks.read.kernels.task_types import NO_KERNEL
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.quarantine import refused_rows
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.constants import Constants
from tilewatch.tasks.read.tabular.csv_rows import CsvFile, RowBlock
from tilewatch.tasks.read.tabular.layout import Field, Kind, Layout
from tilewatch.tasks.read.tabular.tensor_lists import SHAPE_FORM, WORDS_FORM, shapes, words

_CORE_FORM = r"[A-Za-z][A-Za-z0-9_ ]*"

KERNELS = Layout(
    "kernels",
    (
        Field("step_id", ("Step Id",), Kind.INTEGER),
        Field("device_id", ("Device_id",), Kind.INTEGER),
        Field("model_id", ("Model ID",), Kind.INTEGER),
        Field("task_id", ("Task ID",), Kind.INTEGER),
        Field("stream_id", ("Stream ID",), Kind.INTEGER),
        Field("name", ("Name", "Op Name"), Kind.TEXT, required=True),
        Field("op_type", ("Type", "OP Type"), Kind.TEXT),
        Field("op_state", ("OP State",), Kind.TEXT, pattern=r"[a-z]+"),
        Field("task_type", ("Accelerator Core", "Task Type"), Kind.TEXT, pattern=_CORE_FORM),
        Field("start_ns", ("Start Time(us)", "Task Start Time(us)"), Kind.TIMESTAMP, minimum=0),
        Field("duration_ns", ("Duration(us)", "Task Duration(us)"), Kind.DURATION, required=True, minimum=0),
        Field("wait_ns", ("Wait Time(us)", "Task Wait Time(us)"), Kind.DURATION),
        Field("block_dim", ("Block Dim", "Block Num"), Kind.INTEGER, minimum=0),
        Field("mix_block_dim", ("Mix Block Dim", "Mix Block Num"), Kind.INTEGER, minimum=0),
        Field("hf32", ("HF32 Eligible",), Kind.TEXT, pattern="YES|NO"),
        Field("input_shapes", ("Input Shapes",), Kind.TEXT, pattern=SHAPE_FORM),
        Field("input_dtypes", ("Input Data Types",), Kind.TEXT, pattern=WORDS_FORM),
        Field("input_formats", ("Input Formats",), Kind.TEXT, pattern=WORDS_FORM),
        Field("output_shapes", ("Output Shapes",), Kind.TEXT, pattern=SHAPE_FORM),
        Field("output_dtypes", ("Output Data Types",), Kind.TEXT, pattern=WORDS_FORM),
        Field("output_formats", ("Output Formats",), Kind.TEXT, pattern=WORDS_FORM),
        Field("context_id", ("Context ID",), Kind.INTEGER, minimum=0),
    ),
    counters=True,
    aside=("task_type", NO_KERNEL),
)
"""kernel_details.csv and op_summary*.csv, 2023 to 2026: one layout, since only header names differ."""

COMPARED = replace(
    KERNELS,
    counters=("aic_total_cycles", "aicore_time(us)", "aic_time(us)", "aiv_total_cycles", "aiv_time(us)"),
)
"""The same without counters but those that say the frequency: a comparison asks for no others."""

_PLAIN = ("step_id", "device_id", "task_id", "stream_id", "start_ns", "duration_ns", "wait_ns", "context_id")
_TEXTS = ("name", "op_type", "task_type")
_SHAPES = ("input_shapes", "output_shapes")
_WORDS = ("input_dtypes", "input_formats", "output_dtypes", "output_formats")
NO_START, COARSE_START = "no_start_time", "start_time_went_through_a_double"
_FLAGS = pa.array([None, [NO_START], [COARSE_START]], type=pa.list_(pa.string()))


def kernel_batches(
    path: Path, origin: Origin, source_file: str | None = None, layout: Layout = KERNELS
) -> Iterator[ReadResult]:
    """A kernel CSV block by block, in file order: memory stays that of a block whatever the file's size.

    Every result holds rows of contract ``kernels`` and the refused rows of its block; the last one carries
    the facts of the whole file and what is refused as a whole. ``source_file`` is the name that rows carry,
    the file's own name without it.
    """
    file = CsvFile(path, source_file or path.name, layout)
    constants = Constants(origin, file.source_file)
    index = schema("kernels").get_field_index("kernel_index")

    def made(block: RowBlock) -> ReadResult:
        return ReadResult(_kernels(block, constants), refused_rows(origin, layout.table, block.refusals))

    for result in file.made(made):
        rows = result.table.num_rows
        numbers = np.arange(file.facts["rows"] - rows, file.facts["rows"], dtype=np.int64)
        table = result.table.set_column(index, result.table.schema.field(index), pa.array(numbers))
        yield replace(result, table=table)
    yield ReadResult(
        schema("kernels").empty_table(), refused_rows(origin, layout.table, file.refusals), file.facts
    )


def read_kernels(
    path: Path,
    origin: Origin,
    source_file: str | None = None,
    layout: Layout = KERNELS,
    *,
    spool: Path | None = None,
) -> ReadResult:
    """A whole kernel CSV as one table of contract ``kernels``; facts hold the share of time of ``other``.

    With ``spool``, a folder, the rows go there batch by batch as an Arrow file and the table maps it: memory
    stays that of a few batches and of the columns in use. The file may be unlinked while the table lives.
    """
    batches = kernel_batches(path, origin, source_file, layout)
    quarantines: list[pa.Table] = []
    facts: dict[str, Any] = {}

    def tables() -> Iterator[pa.Table]:
        for batch in batches:
            quarantines.append(batch.quarantine)
            facts.update(batch.facts)
            yield batch.table

    table = pa.concat_tables(tables()) if spool is None else _mapped(tables(), spool)
    return ReadResult(table, pa.concat_tables(quarantines), {**facts, "other_share": other_share(table)})


def _mapped(tables: Iterable[pa.Table], spool: Path) -> pa.Table:
    handle, name = tempfile.mkstemp(".arrow", "kernels-", spool)
    with os.fdopen(handle, "wb") as stream, pa.ipc.new_file(stream, schema("kernels")) as writer:
        for table in tables:
            writer.write_table(table)
    return pa.ipc.open_file(pa.memory_map(name)).read_all()


def _kernels(block: RowBlock, constants: Constants) -> pa.Table:
    """Rows of the contract; ``kernel_index`` counts within the block."""
    rows = len(block.lines)
    columns: dict[str, Any] = constants.columns(rows)
    columns["kernel_index"] = pa.array(np.arange(rows, dtype=np.int64))
    columns["source_line"] = pa.array(block.lines)
    columns |= {name: values for name in _PLAIN if (values := block.column(name)) is not None}
    columns |= {name: v.cast(pa.string()) for name in _TEXTS if (v := block.column(name)) is not None}
    columns |= {name: words(values) for name in _WORDS if (values := block.column(name)) is not None}
    last_dims = {name: np.full(rows, -1, dtype=np.int64) for name in _SHAPES}
    for name in _SHAPES:
        if (cells := block.column(name)) is not None:
            parsed = shapes(cells)
            columns[name], last_dims[name] = parsed.values, parsed.last_dim
    missing = pa.nulls(rows, pa.string())
    op_type, task_type = columns.get("op_type", missing), columns.get("task_type", missing)
    columns["category"] = categories(op_type, columns["name"], *(last_dims[name] for name in _SHAPES))
    columns |= _blocks(block, task_type)
    columns["metrics"] = _metrics(block, columns.get("task_type"))
    if "start_ns" in columns and (block.coarse or columns["start_ns"].null_count):
        other = pa.scalar(2 if block.coarse else 0)
        columns["flags"] = _FLAGS.take(pc.if_else(columns["start_ns"].is_null(), pa.scalar(1), other))
    spec = schema("kernels")
    arrays = [columns[f.name] if f.name in columns else constants.absent(f.type, rows) for f in spec]
    fitting = [a if a.type == f.type else a.cast(f.type) for a, f in zip(arrays, spec, strict=True)]
    return pa.Table.from_arrays(fitting, schema=spec)


def _blocks(block: RowBlock, task_type: pa.Array) -> dict[str, pa.Array]:
    """Block columns: 0 blocks mean that the profiler did not record them, mix blocks included."""
    dims, mix = block.column("block_dim"), block.column("mix_block_dim")
    if dims is None:
        return {}
    recorded = pc.fill_null(pc.greater(dims, 0), False)
    columns = {"block_dim": pc.if_else(recorded, dims, pa.scalar(None, pa.int64()))}
    if mix is not None:
        columns["mix_block_dim"] = pc.if_else(recorded, mix, pa.scalar(None, pa.int64()))
        columns["aiv_aic_ratio"] = aiv_aic_ratio(task_type, _counts(dims), _counts(mix))
    return columns


def _counts(values: pa.Array) -> npt.NDArray[np.int64]:
    counts: npt.NDArray[np.int64] = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    return counts


def _metrics(block: RowBlock, task_type: pa.Array | None) -> pa.Array:
    names = block.header.counters
    if not names:
        return pa.nulls(len(block.lines), pa.map_(pa.string(), pa.float64()))
    return counter_maps(names, block.counters(), task_type)
