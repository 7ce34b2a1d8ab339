"""op_summary*.csv of msprof, whole or in slices: one row a kernel, with the block and counter columns."""

from __future__ import annotations

from pathlib import Path

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.kernel_rows import read_kernels
from tilewatch.tasks.read.result import ReadResult


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``kernels`` from one op_summary file; the slices of one export are read one by one."""
    return read_kernels(path, origin, source_file)
