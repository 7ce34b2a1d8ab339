"""Stream a log of any size and hand out only the lines that carry one of the wanted marker texts.

The markers are found by one Aho–Corasick pass over large blocks; only the lines that have one reach
Python. A line without a prefix is handed out with the header of the message it continues.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from tilewatch.tasks.read.plog.lines import HEADER, header_census

BLOCK_BYTES = 1 << 19
# A logger's line has 1 KB; a megabyte without a newline is no log. Its rest is dropped and counted.
LINE_LIMIT_BYTES = 1 << 20
_LOOK_BACK_LINES = 64


@dataclass(slots=True)
class ScanCounts:
    """What went by. ``unclassified`` holds (line, raw text) of lines that look like a header but are none."""

    size_bytes: int = 0
    lines: int = 0
    marked_lines: int = 0
    continued_lines: int = 0
    orphan_lines: int = 0
    dropped_bytes: int = 0
    header_lines: int = 0
    unclassified: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class MarkedLine:
    """``header`` is the line that starts the message, ``continuation`` the later line of it with the marker.

    ``match`` is the header's match of HEADER, where it was just made; ``continuation`` is None where the
    header line itself has the marker. ``marker`` is the marker's index, ``number`` the physical line that
    carries it, from 1. ``unterminated``: the file ends inside it. ``header`` is empty where no line before it
    has one.
    """

    number: int
    header: bytes
    match: re.Match[bytes] | None
    marker: int
    continuation: bytes | None = None
    unterminated: bool = False

    @property
    def raw(self) -> bytes:
        """The physical line that carries the marker."""
        return self.header if self.continuation is None else self.continuation


class MarkerScanner:
    """Finds lines with markers. Of several markers in one line the first in the given order wins."""

    def __init__(self, markers: Sequence[str], *, block_bytes: int = BLOCK_BYTES) -> None:
        self._automaton = BytesAhoCorasick([m.encode() for m in markers], matchkind=MatchKind.LeftmostFirst)
        self._block_bytes = block_bytes

    def scan(self, stream: BinaryIO, counts: ScanCounts, *, census: bool = False) -> Iterator[MarkedLine]:
        """Yield marked lines in file order; ``counts`` is filled while it runs. The stream must be seekable.

        With ``census`` every header line is counted and every line that only looks like one is kept (slower).
        """
        header = b""
        for block in self._blocks(stream, counts):
            if census:
                self._census(block, counts)
            yield from self._marked(block, header, counts)
            header = _header_before(block, len(block)) or header

    def _blocks(self, stream: BinaryIO, counts: ScanCounts) -> Iterator[bytes]:
        rest = b""
        while chunk := stream.read(self._block_bytes):
            end = chunk.rfind(b"\n") + 1
            if end:
                # Read again rather than carried along: joining to the next piece would copy all of it.
                stream.seek(end - len(chunk), os.SEEK_CUR)
                yield rest + chunk[:end] if rest else chunk[:end]
                rest = b""
            elif len(rest) < LINE_LIMIT_BYTES:
                rest += chunk
            else:
                counts.dropped_bytes += len(chunk)
            counts.size_bytes += end or len(chunk)
        if rest:
            yield rest

    def _marked(self, block: bytes, header: bytes, counts: ScanCounts) -> Iterator[MarkedLine]:
        number, counted, start, end, best = counts.lines + 1, 0, -1, -1, -1
        length = len(block)
        for marker, at, _ in self._automaton.find_matches_as_indexes(block):
            if at < end:
                best = min(best, marker)
                continue
            if start >= 0:
                match = HEADER.match(block, start, end)
                if match is not None and end < length:
                    yield MarkedLine(number, block[start:end], match, best)
                else:
                    yield _message(block, start, end, number, best, header, counts)
            start = block.rfind(b"\n", max(end, 0), at) + 1
            end = block.find(b"\n", at)
            end = length if end < 0 else end
            number += block.count(b"\n", counted, start)
            counted, best = start, marker
            counts.marked_lines += 1
        if start >= 0:
            yield _message(block, start, end, number, best, header, counts)
        counts.lines = number - 1 + block.count(b"\n", counted) + (not block.endswith(b"\n"))

    def _census(self, block: bytes, counts: ScanCounts) -> None:
        good, bad = header_census(block)
        counts.header_lines += good
        for at in bad:
            end = block.find(b"\n", at)
            line = block[at : end if end >= 0 else len(block)]
            counts.unclassified.append(
                (counts.lines + 1 + block.count(b"\n", 0, at), line[:LINE_LIMIT_BYTES])
            )


def _message(
    block: bytes, start: int, end: int, number: int, marker: int, header: bytes, counts: ScanCounts
) -> MarkedLine:
    line = block[start : min(end, start + LINE_LIMIT_BYTES)].rstrip(b"\r")
    unterminated = end == len(block)
    if match := HEADER.match(line):
        return MarkedLine(number, line, match, marker, unterminated=unterminated)
    before = _header_before(block, start) or header
    if before:
        counts.continued_lines += 1
    else:
        counts.orphan_lines += 1
    return MarkedLine(number, before, None, marker, line, unterminated)


def _header_before(block: bytes, end: int) -> bytes:
    """The nearest header line that ends before ``end``, within a message's reach; else empty."""
    for _ in range(_LOOK_BACK_LINES):
        if end <= 0:
            return b""
        start = block.rfind(b"\n", 0, end - 1) + 1
        line = block[start : min(end, start + LINE_LIMIT_BYTES)]
        if HEADER.match(line):
            return line
        end = start
    return b""
