"""Events of a trace file (a JSON array, or the ``traceEvents`` of an object), streamed in batches.

The file is cut between two events and every piece parsed as an array of its own: a cut inside a string or
a nested array makes the piece invalid, so a piece that parses was cut rightly. A damaged event is set apart
with its place, and the rest is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from tilewatch.tasks.read.quarantine import Refusal

CHUNK_BYTES = 1 << 20
_LONGEST_EVENT = 32 << 20
_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_NUMERIC_TIME = re.compile(rb'("ts"\s*:\s*)(-?[0-9][0-9.]*)')
_LAST_BOUNDARIES = 8
_JOINED_PIECES = 8


@dataclass
class Batch:
    """Events of one piece of the file, in order, and what was refused in it."""

    events: list[dict[str, Any]]
    refusals: list[Refusal] = field(default_factory=list)


def event_batches(path: Path, source_file: str) -> Iterator[Batch]:
    """Batches of events in file order. ``ts`` is text, with every digit that the file has.

    A file that holds no array of events gives one batch with one refusal.
    """
    with path.open("rb") as stream:
        head = stream.read(CHUNK_BYTES)
        start = _array_start(head)
        if start is None:
            yield Batch([], [_no_events(source_file, head)])
            return
        place = _Place(source_file, start, 1 + head[:start].count(b"\n"))
        data, more = head[start:], bool(head)
        while more:
            piece = stream.read(CHUNK_BYTES)
            more = bool(piece)
            data += piece
            if not more or len(data) > _LONGEST_EVENT:
                break
            cut, batch = _front(data, place)
            if batch is not None:
                yield batch
                place.advance(data[:cut])
                data = data[cut:]
        yield from _rest(data, place, more)


@dataclass
class _Place:
    """How far the file is consumed: byte offset and line, and the name for refusals."""

    source_file: str
    offset: int
    line: int

    def advance(self, data: bytes) -> None:
        self.offset += len(data)
        self.line += data.count(b"\n")

    def refusal(self, data: bytes, at: int, end: int, reason: str) -> Refusal:
        line = self.line + data.count(b"\n", 0, at)
        raw = data[at : min(end, at + 4000)].decode("utf-8", "backslashreplace")
        return Refusal(
            self.source_file, line, "json_event", f"{reason}, at byte {self.offset + at}", raw_text=raw
        )


def _array_start(head: bytes) -> int | None:
    """Offset behind the bracket that opens the array of events."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    skipped = len(head) - len(text)
    if text.startswith(b"["):
        return skipped + 1
    if text.startswith(b"{") and (found := re.search(rb'"traceEvents"\s*:\s*\[', text)):
        return skipped + found.end()
    return None


def _no_events(source_file: str, head: bytes) -> Refusal:
    if not head:
        return Refusal(source_file, None, "empty_file", "the file has no bytes")
    raw = head[:4000].decode("utf-8", "backslashreplace")
    return Refusal(source_file, None, "no_events", "the file holds no array of trace events", raw_text=raw)


def _front(data: bytes, place: _Place) -> tuple[int, Batch | None]:
    """Events of the front of ``data`` and where the next piece starts; None while no event is complete."""
    near_end = max(0, len(data) - (CHUNK_BYTES >> 2))
    boundaries = list(_BOUNDARY.finditer(data, near_end)) or list(_BOUNDARY.finditer(data))
    for match in boundaries[: -_LAST_BOUNDARIES - 1 : -1]:
        events = _parse(data[: match.start() + 1])
        if events is not None:
            return match.end() - 1, _batch(events, [], place)
    if not boundaries:
        return 0, None
    front = data[: boundaries[-1].start() + 1]
    events, refusals, used = _salvage(front, place, "damaged event", last=False)
    cut = boundaries[-1].end() - 1 if used == len(front) else used
    return cut, _batch(events, refusals, place) if used else None


def _rest(data: bytes, place: _Place, more: bool) -> Iterator[Batch]:
    """What stands behind the last cut: the end of the array, or of a file that was cut off."""
    if more:
        reason = "no event ends in the next 32 MiB, the rest of the file is not read"
        yield Batch([], [place.refusal(data, 0, 4000, reason)])
        return
    end = len(data)
    for _ in range(_LAST_BOUNDARIES):
        end = data.rfind(b"]", 0, end)
        if end < 0:
            break
        events = _parse(data[:end].rstrip().removesuffix(b","))
        if events is not None:
            yield _batch(events, [], place)
            return
    tail = data.rstrip().removesuffix(b"]").rstrip().removesuffix(b",")
    events, refusals, _ = _salvage(tail, place, "damaged event or end of a cut-off file", last=True)
    yield _batch(events, refusals, place)


def _parse(data: bytes) -> list[Any] | None:
    if _NUMERIC_TIME.search(data):
        data = _NUMERIC_TIME.sub(rb'\1"\2"', data)
    try:
        parsed: list[Any] = orjson.loads(b"[" + data + b"]")
    except orjson.JSONDecodeError:
        return None
    return parsed


def _salvage(data: bytes, place: _Place, reason: str, last: bool) -> tuple[list[Any], list[Refusal], int]:
    """Every event of ``data`` that parses on its own, in order, a refusal for each stretch that does not, and
    how many bytes are used up.

    A stretch between two boundaries may be part of one event that holds objects in a list, or a text that
    looks like a boundary: neighbours that do not parse alone are tried together, those at the end are left
    for the next piece unless this is the last.
    """
    starts, ends = _stretches(data)
    found: dict[int, list[Any]] = {}
    damaged: list[int] = []

    def visit(low: int, high: int) -> None:
        events = _parse(data[starts[low] : ends[high - 1]])
        if events is not None:
            found[low] = events
        elif high - low == 1:
            damaged.append(low)
        else:
            middle = (low + high) // 2
            visit(low, middle)
            visit(middle, high)

    visit(0, len(starts))
    used = len(starts)
    while not last and damaged and damaged[-1] == used - 1:
        used = damaged.pop()
    refusals = []
    while damaged:
        low = damaged[0]
        run = next((n for n in range(1, _JOINED_PIECES) if low + n not in damaged), _JOINED_PIECES)
        whole = (_parse(data[starts[low] : ends[low + n - 1]]) for n in range(2, run + 1))
        joined = next(((n, events) for n, events in enumerate(whole, start=2) if events is not None), None)
        if joined is not None:
            found[low] = joined[1]
        elif data[starts[low] : ends[low]].strip(b" \r\n\t,]"):
            refusals.append(place.refusal(data, starts[low], ends[low], reason))
        del damaged[: joined[0] if joined else 1]
    used_bytes = starts[used] if used < len(starts) else len(data)
    return [event for low in sorted(found) for event in found[low]], refusals, used_bytes


def _stretches(data: bytes) -> tuple[list[int], list[int]]:
    """Where the stretches between boundaries start and end."""
    marks = [(match.start() + 1, match.end() - 1) for match in _BOUNDARY.finditer(data)]
    return [0] + [after for _, after in marks], [before for before, _ in marks] + [len(data)]


def _batch(events: list[Any], refusals: list[Refusal], place: _Place) -> Batch:
    good = [event for event in events if isinstance(event, dict)]
    odd = [event for event in events if not isinstance(event, dict)]
    refusals += [
        Refusal(
            place.source_file, place.line, "json_event", "an event is an object", raw_text=repr(event)[:4000]
        )
        for event in odd
    ]
    return Batch(good, refusals)
