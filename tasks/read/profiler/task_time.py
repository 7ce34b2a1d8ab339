"""task_time*.csv: every device task, memory copies and placeholders included, with the compiled kernel
symbol.

The numeric suffix of the symbol is the tiling key; op_summary does not have it.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.row_table import Columns, read_rows
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.layout import Field, Kind, Layout

LAYOUT = Layout(
    "device_tasks",
    (
        Field("device_id", ("Device_id",), Kind.INTEGER),
        Field("name", ("kernel_name",), Kind.TEXT),
        Field("task_type", ("kernel_type",), Kind.TEXT, pattern=r"[A-Za-z][A-Za-z0-9_ ]*"),
        Field("stream_id", ("stream_id",), Kind.INTEGER),
        Field("task_id", ("task_id",), Kind.INTEGER),
        Field("duration_ns", ("task_time(us)",), Kind.DURATION, required=True, minimum=0),
        Field("start_ns", ("task_start(us)",), Kind.TIMESTAMP, minimum=0),
        Field("end_ns", ("task_stop(us)",), Kind.TIMESTAMP, minimum=0),
    ),
)


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``device_tasks`` from one task_time file."""
    return read_rows(path, origin, source_file, LAYOUT, _with_tiling_key)


def _with_tiling_key(columns: Columns) -> Columns:
    if "name" not in columns:
        return columns
    names = columns["name"].dictionary_encode()
    suffix = pc.extract_regex(names.dictionary, r"_(?P<key>[0-9]{1,20})(?:_mix_ai[cv])?$")
    found = pc.struct_field(suffix, [0])
    return columns | {"tiling_key": found.take(names.indices).cast(pa.string())}
