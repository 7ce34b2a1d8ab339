"""operator_details.csv of torch_npu: one row a framework operator, with call stacks that span lines."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.row_table import Columns, collect
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.csv_records import record_blocks
from tilewatch.tasks.read.tabular.csv_rows import CsvFile
from tilewatch.tasks.read.tabular.layout import Field, Kind, Layout

LAYOUT = Layout(
    "api_calls",
    (
        Field("name", ("Name",), Kind.TEXT, required=True),
        Field("input_shapes", ("Input Shapes",), Kind.TEXT),
        Field("call_stack", ("Call Stack",), Kind.TEXT),
        Field("self_ns", ("Host Self Duration(us)",), Kind.DURATION, required=True),
        Field("total_ns", ("Host Total Duration(us)",), Kind.DURATION, required=True),
        Field("device_self_ns", ("Device Self Duration(us)",), Kind.DURATION),
        Field("device_total_ns", ("Device Total Duration(us)",), Kind.DURATION),
        Field("aicore_self_ns", ("Device Self Duration With AICore(us)",), Kind.DURATION),
        Field("aicore_total_ns", ("Device Total Duration With AICore(us)",), Kind.DURATION),
    ),
)


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``api_calls``, level ``torch``, one call a row; ``source_line`` is where the record starts."""
    file = CsvFile(path, source_file or path.name, LAYOUT)
    return collect(file, record_blocks(file), origin, _one_call_each)


def _one_call_each(columns: Columns) -> Columns:
    rows = len(columns["name"])
    return columns | {
        "level": pa.repeat(pa.scalar("torch"), rows),
        "count": pa.repeat(pa.scalar(1, pa.int64()), rows),
    }
