"""kernel_details.csv of the torch_npu profiler: one row a kernel, at levels 0 to 2."""

from __future__ import annotations

from pathlib import Path

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.kernel_rows import read_kernels
from tilewatch.tasks.read.result import ReadResult


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``kernels`` from one kernel_details.csv; facts hold its columns and the share of ``other``."""
    return read_kernels(path, origin, source_file)
