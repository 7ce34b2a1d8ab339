"""CSVs of ``msprof op`` (OPPROF_* folders): OpBasicInfo, and counter files with one row a core block.

Every line ends in a comma, no value is ``NA``. Several operators, launches or devices stand in folders
``device{N}/{operator}/{launch}``; counter names differ from those of msprof (``aic_cube_ratio`` there is
``aic_mac_ratio`` here).
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pyarrow as pa

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.kernel_rows import read_kernels
from tilewatch.tasks.read.profiler.row_table import Columns, read_rows
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.layout import Field, Kind, Layout

GROUPS = (
    "OpBasicInfo",
    "PipeUtilization",
    "ArithmeticUtilization",
    "L2Cache",
    "Memory",
    "MemoryL0",
    "MemoryUB",
    "ResourceConflictRatio",
)

BASIC_INFO = Layout(
    "kernels",
    (
        Field("name", ("Op Name",), Kind.TEXT, required=True),
        Field("task_type", ("Op Type",), Kind.TEXT, pattern=r"[A-Za-z][A-Za-z0-9_ ]*"),
        Field("duration_ns", ("Task Duration(us)",), Kind.DURATION, required=True, minimum=0),
        Field("block_dim", ("Block Dim", "Block Num"), Kind.INTEGER, minimum=0),
        Field("mix_block_dim", ("Mix Block Dim", "Mix Block Num"), Kind.INTEGER, minimum=0),
        Field("device_id", ("Device Id",), Kind.INTEGER),
        Field("pid", ("Pid",), Kind.INTEGER),
    ),
    counters=True,
)
BLOCKS = Layout(
    "block_counters",
    (
        Field("block_id", ("block_id",), Kind.INTEGER, minimum=0),
        Field("sub_block_id", ("sub_block_id",), Kind.TEXT, pattern=r"[a-z]+[0-9]*"),
    ),
    counters=True,
)

_STAMP = re.compile(r"_\d{8,20}$")


def metric_group(path: Path) -> str | None:
    """Which file of ``msprof op`` this is by its name, with or without a time stamp; None for any other."""
    stem = _STAMP.sub("", path.stem)
    return stem if path.suffix == ".csv" and stem in GROUPS else None


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``kernels`` from OpBasicInfo (one launch, no start time), else ``block_counters``.

    ``task_type`` of OpBasicInfo is cube, vector or mix, as written. Raises ValueError for another file name.
    """
    group = metric_group(path)
    if group is None:
        raise ValueError(f"{path.name} is no file of msprof op; known: {', '.join(GROUPS)}")
    if group == "OpBasicInfo":
        return read_kernels(path, origin, source_file, BASIC_INFO)
    place = _place(PurePosixPath(source_file or path.as_posix()))
    return read_rows(path, origin, source_file, BLOCKS, lambda columns: _labelled(columns, group, place))


def _place(path: PurePosixPath) -> tuple[str | None, int | None, int | None]:
    """Operator, launch and device, where the folders below OPPROF_* say them."""
    folders = list(path.parts[:-1])
    below = next((i + 1 for i, name in enumerate(folders) if name.startswith("OPPROF_")), len(folders))
    device = next((int(f[6:]) for f in folders[below:] if re.fullmatch(r"device\d+", f)), None)
    named = [folder for folder in folders[below:] if not re.fullmatch(r"device\d+", folder)]
    if len(named) == 2 and named[1].isdecimal():
        return named[0], int(named[1]), device
    return None, None, device


def _labelled(columns: Columns, group: str, place: tuple[str | None, int | None, int | None]) -> Columns:
    rows = len(columns["row_index"])
    op_name, launch, device = place
    return columns | {
        "metric_group": pa.repeat(pa.scalar(group), rows),
        "op_name": pa.repeat(pa.scalar(op_name, pa.string()), rows),
        "launch_index": pa.repeat(pa.scalar(launch, pa.int64()), rows),
        "device_id": pa.repeat(pa.scalar(device, pa.int64()), rows),
    }
