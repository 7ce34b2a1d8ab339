"""How much of a log is missing, as numbers: jumps in sequence numbers, task ids and counters, and file times.

The logger loses the oldest files by rotation (10 files of 20 MB a process by default), and lines in the
middle when it does not keep up, without a mark. Numbers that count up by one show it; calls that print no
tiling line also leave jumps, so these are upper bounds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

TASK_ID_RANGE = 1 << 16
DEFAULT_FILES_KEPT = 10
FULL_FILE_BYTES = 19 << 20
_FILE = re.compile(r"(?:plog|device)-(\d+)_(\d{14})(\d{3})\.log$")
_BACKWARDS = TASK_ID_RANGE // 2


@dataclass(slots=True)
class _Seen:
    """Numbers that should count up by one: distinct ones as bits from ``first``."""

    first: int
    bits: bytearray = field(default_factory=bytearray)
    last: int = 0
    distinct: int = 0

    def add(self, number: int) -> None:
        if number < self.first:
            shift = (self.first - number + 7) // 8
            self.bits[:0] = bytes(shift)
            self.first -= shift * 8
        place, bit = divmod(number - self.first, 8)
        if place >= len(self.bits):
            self.bits.extend(bytes(place + 1 - len(self.bits)))
        if not self.bits[place] >> bit & 1:
            self.bits[place] |= 1 << bit
            self.distinct += 1
        self.last = max(self.last, number)

    @property
    def lowest(self) -> int:
        for place, byte in enumerate(self.bits):
            if byte:
                return self.first + 8 * place + (byte & -byte).bit_length() - 1
        return self.first

    @property
    def missing(self) -> int:
        return self.last - self.lowest + 1 - self.distinct


# A jump this far is another counter (a forked child, garbage), not that many lost lines.
_SEQUENCE_SPAN = 1 << 26


class LossCounter:
    """Collects the counting numbers of one process while its lines go by."""

    def __init__(self) -> None:
        self._sequences: _Seen | None = None
        self._odd_sequences = 0
        self._last_task: dict[tuple[int | None, int], int] = {}
        self._task_jumps = 0
        self._tasks_missing = 0
        self._last_count: dict[str, int] = {}
        self._count_missing = 0

    def sequence(self, number: int) -> None:
        """An opbase sequence number (``OpName:[X_<seq>…]``)."""
        if self._sequences is None:
            self._sequences = _Seen(number)
        if abs(number - self._sequences.first) > _SEQUENCE_SPAN:
            self._odd_sequences += 1
        else:
            self._sequences.add(number)

    def task(self, device: int | None, stream: int, task: int) -> None:
        """A task id in a launch line; 16 bits, counting up on its stream."""
        last = self._last_task.get((device, stream))
        if last is not None:
            step = (task - last) % TASK_ID_RANGE
            if 1 < step < _BACKWARDS:
                self._task_jumps += 1
                self._tasks_missing += step - 1
        self._last_task[device, stream] = task

    def counter(self, name: str, count: int) -> None:
        """A running count that the runtime prints (``task_launched_num``, ``task_finish_num``)."""
        last = self._last_count.get(name)
        if last is not None and count > last + 1:
            self._count_missing += count - last - 1
        self._last_count[name] = max(count, last or 0)

    def numbers(self) -> dict[str, int]:
        """The loss of this process in numbers."""
        seen = self._sequences
        return {
            "sequences_seen": seen.distinct if seen else 0,
            "sequences_missing": seen.missing if seen else 0,
            "sequences_out_of_range": self._odd_sequences,
            "task_id_jumps": self._task_jumps,
            "task_ids_missing": self._tasks_missing,
            "counted_tasks_missing": self._count_missing,
        }


def file_time_loss(files: Iterable[tuple[str, int]]) -> dict[str, dict[str, Any]]:
    """Per pid in the file names: files, rotation and what the creation times say. ``files``: (path, bytes).

    ``head_lost_ns`` is how much later the oldest debug file begins than the oldest run or security file of
    the same process: the debug files before it are gone. ``rotated`` is True where the number of debug files
    is the logger's default limit or more and the oldest is full.
    """
    by_pid: dict[str, list[tuple[int, bool, int]]] = {}
    for path, size_bytes in files:
        if found := _FILE.search(path):
            debug = not {"run", "security"} & set(PurePosixPath(path).parts)
            by_pid.setdefault(found[1], []).append((_created_ns(found[2], found[3]), debug, size_bytes))
    return {pid: _process_files(entries) for pid, entries in by_pid.items()}


def _process_files(entries: list[tuple[int, bool, int]]) -> dict[str, Any]:
    debug = sorted((created, size) for created, is_debug, size in entries if is_debug)
    others = [created for created, is_debug, _ in entries if not is_debug]
    lost = max(0, debug[0][0] - min(others)) if debug and others else None
    return {
        "debug_files": len(debug),
        "first_created_ns": debug[0][0] if debug else None,
        "last_created_ns": debug[-1][0] if debug else None,
        "head_lost_ns": lost,
        "rotated": len(debug) >= DEFAULT_FILES_KEPT and debug[0][1] >= FULL_FILE_BYTES,
    }


def _created_ns(second: str, millisecond: str) -> int:
    try:
        moment = datetime.strptime(second, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(moment.timestamp()) * 1_000_000_000 + int(millisecond) * 1_000_000
