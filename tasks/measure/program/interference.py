"""Notices that something else ran in the middle of a sample: a preemption, or a throttled core."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, Optional

WAITED_SHARE = 0.01
"""A sample that waited for its core for more than this share of itself says little about the operator."""

PREEMPTED = "preempted"
THROTTLED = "throttled"


class Mark(NamedTuple):
    """Counters at one moment: time spent runnable but not running, and throttling events of the core."""

    waited_ns: int
    throttles: int


class Interference:
    """Compares the kernel's counters of the calling thread before and after a sample.

    ``sources`` names the counters that exist here. Where none does, nothing is noticed.
    """

    def __init__(self, cpu: Optional[int]) -> None:
        self._scheduling = _open("/proc/thread-self/schedstat")
        core = f"/sys/devices/system/cpu/cpu{cpu}/thermal_throttle/core_throttle_count"
        self._throttling = _open(core) if cpu is not None else None
        known = {"schedstat": self._scheduling, "core_throttle_count": self._throttling}
        self.sources = [name for name, descriptor in known.items() if descriptor is not None]

    def mark(self) -> Mark:
        """The counters now."""
        return Mark(_number(self._scheduling, 1), _number(self._throttling, 0))

    def between(self, before: Mark, interval_ns: int) -> Optional[str]:
        """``throttled``, ``preempted`` or None for a sample of ``interval_ns`` that began at ``before``."""
        after = self.mark()
        if after.throttles > before.throttles:
            return THROTTLED
        if after.waited_ns - before.waited_ns > WAITED_SHARE * interval_ns:
            return PREEMPTED
        return None


def _open(path: str) -> Optional[int]:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC) if Path(path).is_file() else None


def _number(descriptor: Optional[int], field: int) -> int:
    return 0 if descriptor is None else int(os.pread(descriptor, 128, 0).split()[field])
