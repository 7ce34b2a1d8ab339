"""op_statistic*.csv: kernels aggregated by operator type and core type, as msprof computed it."""

from __future__ import annotations

from pathlib import Path

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.row_table import read_rows
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.layout import Field, Kind, Layout

LAYOUT = Layout(
    "operators",
    (
        Field("device_id", ("Device_id",), Kind.INTEGER),
        Field("op_type", ("OP Type",), Kind.TEXT, required=True),
        Field("task_type", ("Core Type",), Kind.TEXT, pattern=r"[A-Za-z][A-Za-z0-9_ ]*"),
        Field("count", ("Count",), Kind.INTEGER, required=True, minimum=0),
        Field("total_ns", ("Total Time(us)",), Kind.DURATION, required=True, minimum=0),
        Field("min_ns", ("Min Time(us)",), Kind.DURATION),
        Field("mean_ns", ("Avg Time(us)",), Kind.DURATION),
        Field("max_ns", ("Max Time(us)",), Kind.DURATION),
        Field("share_percent", ("Ratio(%)",), Kind.NUMBER),
    ),
)


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``operators`` from one op_statistic file."""
    return read_rows(path, origin, source_file, LAYOUT)
