"""Per-operator times by torch's Kineto profiler, after all timing, in one trace that is left untouched.

Every point's calls lie in a range ``point:<point_id>``. Host operators inside a reference kernel are not
recorded: on the device a kernel has no inside either, and they would be most of the file.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator, Mapping, Sequence, Tuple

import cpu_kernels
import torch
from backends import Prepared
from guard import Guard
from torch.autograd.profiler import profile, record_function

TRACE = "trace.json"
RANGE_PREFIX = "point:"


def profile_points(
    points: Sequence[Mapping[str, object]],
    prepare: Callable[[Mapping[str, object]], Prepared],
    calls: int,
    folder: Path,
    guard: Guard,
) -> None:
    """Call every point ``calls`` times under the profiler and write ``folder``/trace.json."""
    cpu_kernels.record_inside(False)
    try:
        # torch.profiler.profile is a front end to this; entering it imports 800 modules of inductor first.
        with profile(use_kineto=True, record_shapes=True) as profiler:
            for point in points:
                guard.check()
                with _unrecorded():
                    batch = _rotated(prepare(point), calls)
                with record_function(f"{RANGE_PREFIX}{point['point_id']}"):
                    for call in batch:
                        call()
        profiler.export_chrome_trace(str(folder / TRACE))
    finally:
        cpu_kernels.record_inside(True)


@contextmanager
def _unrecorded() -> Iterator[None]:
    """Leave the preparation of a point out of the trace."""
    cpu_kernels.record_inside(True)  # kernels must not switch recording on again
    torch._C._autograd._enable_record_function(False)
    try:
        yield
    finally:
        torch._C._autograd._enable_record_function(True)
        cpu_kernels.record_inside(False)


def _rotated(prepared: Prepared, calls: int) -> Tuple[Callable[[], object], ...]:
    return tuple(prepared.calls[index % len(prepared.calls)] for index in range(calls))
