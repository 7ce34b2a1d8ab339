"""``*.trace.json`` of a server or of torch's profiler: a timeline of its device, else a stage profile."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import stage_profile, timeline
from tilewatch.tasks.read.profiler.step_marks import with_steps
from tilewatch.tasks.read.result import ReadResult

_DEVICE = re.compile(rb'"Task Type"|"cat"\s*:\s*"kernel"')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})[,}\s]')
_CHUNK_BYTES = 1 << 20
_OVERLAP = 64
_TIMES = ("start_ns", "end_ns", "host_enqueue_ns")


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``kernels`` from the device tracks of a trace, with the steps of its marks.

    A trace without a device track is read as a stage profile: its operators on the host are the kernels.
    """
    if not _holds(path, _DEVICE):
        return stage_profile.read(path, origin, source_file)
    result = timeline.read(path, origin, source_file)
    base = _holds(path, _BASE)
    also = {name: _shifted(table, base) for name, table in result.also.items()}
    kernels = _shifted(result.table, base)
    if "stage_steps" in also:
        kernels = with_steps(kernels, also["stage_steps"])
    return replace(result, table=kernels, also=also)


def _holds(path: Path, wanted: re.Pattern[bytes]) -> int:
    """The number that the first match of ``wanted`` carries, 1 where it carries none, 0 without a match."""
    tail = b""
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            if found := wanted.search(tail + chunk):
                return int(found[1]) if found.re.groups else 1
            tail = chunk[-_OVERLAP:]
    return 0


def _shifted(table: pa.Table, base_ns: int) -> pa.Table:
    """``table`` with its times from ``base_ns``, which is what the times of the file count from."""
    for name in _TIMES if base_ns else ():
        if name in table.column_names:
            index = table.column_names.index(name)
            table = table.set_column(index, table.schema.field(index), pc.add(table[name], base_ns))
    return table
