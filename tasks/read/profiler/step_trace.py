"""step_trace_time.csv of torch_npu and cluster_step_trace_time.csv of msprof-analyze: the time of a step by
kind.

The profiler writes sums of doubles (``231290.09999999995``); they are rounded to the nanosecond they mean.
"""

from __future__ import annotations

from pathlib import Path

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.row_table import read_rows
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.layout import Field, Kind, Layout

LAYOUT = Layout(
    "steps",
    (
        Field("device_id", ("Device_id",), Kind.INTEGER),
        Field("step_id", ("Step",), Kind.INTEGER),
        Field("scope", ("Type",), Kind.TEXT, pattern=r"[a-z]+"),
        Field("scope_index", ("Index",), Kind.TEXT),
        Field("computing_ns", ("Computing",), Kind.DURATION, required=True),
        Field("communication_ns", ("Communication",), Kind.DURATION),
        Field("communication_not_overlapped_ns", ("Communication(Not Overlapped)",), Kind.DURATION),
        Field("overlapped_ns", ("Overlapped",), Kind.DURATION),
        Field("free_ns", ("Free",), Kind.DURATION),
        Field("stage_ns", ("Stage",), Kind.DURATION),
        Field("bubble_ns", ("Bubble",), Kind.DURATION),
        Field(
            "communication_without_receive_ns",
            ("Communication(Not Overlapped and Exclude Receive)",),
            Kind.DURATION,
        ),
        Field("preparing_ns", ("Preparing",), Kind.DURATION),
    ),
)


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``steps`` from one step trace; negative free time of older versions is kept as written."""
    return read_rows(path, origin, source_file, LAYOUT)
