"""api_statistic*.csv: host functions by level and name; ``{Op}_Tiling`` rows are host tiling time."""

from __future__ import annotations

from pathlib import Path

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.row_table import read_rows
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.layout import Field, Kind, Layout

LAYOUT = Layout(
    "api_calls",
    (
        Field("level", ("Level",), Kind.TEXT, required=True, pattern=r"[A-Za-z][A-Za-z0-9_]*"),
        Field("name", ("API Name",), Kind.TEXT, required=True),
        Field("count", ("Count",), Kind.INTEGER, required=True, minimum=0),
        Field("total_ns", ("Time(us)",), Kind.DURATION, required=True),
        Field("mean_ns", ("Avg(us)",), Kind.DURATION),
        Field("min_ns", ("Min(us)",), Kind.DURATION),
        Field("max_ns", ("Max(us)",), Kind.DURATION),
        Field("variance", ("Variance",), Kind.NUMBER),
    ),
)


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``api_calls`` from one api_statistic file."""
    return read_rows(path, origin, source_file, LAYOUT)
