"""A text file as blocks of whole lines with their numbers; lines no CSV parser may see are set apart."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

BLOCK_BYTES = 3 << 19
LONGEST_LINE = 16 << 20
"""A longer line is no row of any format; it is cut, so that a file without line ends stays harmless."""

NOT_UTF8 = "not UTF-8"
"""Why a line with other bytes is refused."""

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Whole lines of a file: ``data`` starts at line ``first_line``, counted from 1.

    ``unterminated`` says that the last line of the block, and so of the file, has no line end.
    """

    data: bytes
    first_line: int
    line_count: int
    unterminated: bool = False


def blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Blocks of at least one whole line and about ``block_bytes``, in file order.

    The first block is the first line alone: the header. An empty file gives no block.
    """
    with path.open("rb") as stream:
        header = stream.readline(LONGEST_LINE)
        if not header:
            return
        yield Block(header, 1, 1)
        line, size = 2, block_bytes
        while piece := stream.read(size):
            end = piece.rfind(b"\n") + 1
            if end == 0 and len(piece) < size:
                yield Block(piece, line, 1, unterminated=True)
                return
            if end == 0 and size < LONGEST_LINE:
                stream.seek(-len(piece), os.SEEK_CUR)
                size *= 2
                continue
            end, size = end or len(piece), block_bytes
            # Read again rather than carried along: joining to the next piece would copy all of it.
            stream.seek(end - len(piece), os.SEEK_CUR)
            data = piece[:end]
            line_ends = int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord("\n")))
            yield Block(data, line, line_ends + (not data.endswith(b"\n")))
            line += line_ends


def parts(block: Block, starts_part: Callable[[bytes], bool]) -> Iterator[tuple[bytes | None, Block]]:
    """A block cut at the lines that start a part: such a line, None before the first, and what follows it."""
    lines = split(block.data)
    found = [i for i in range(len(lines.starts)) if starts_part(lines.data[lines.starts[i] : lines.ends[i]])]
    for first, last in pairwise([-1, *found, len(lines.starts)]):
        head = lines.data[lines.starts[first] : lines.ends[first]] if first >= 0 else None
        begin = int(lines.ends[first]) if first >= 0 else 0
        end = int(lines.starts[last]) if last < len(lines.starts) else len(block.data)
        unterminated = block.unterminated and last == len(lines.starts)
        yield head, Block(block.data[begin:end], block.first_line + first + 1, last - first - 1, unterminated)


@dataclass(frozen=True)
class Lines:
    """Line table of a block: line ``i`` is ``data[starts[i]:ends[i]]``, its line end included."""

    data: bytes
    starts: IntArray
    ends: IntArray

    def text(self, index: int) -> str:
        """Line ``index`` as text, without its line end; bytes that are not UTF-8 are shown as escapes."""
        raw = self.data[self.starts[index] : self.ends[index]]
        return raw.decode("utf-8", "backslashreplace").rstrip("\r\n")

    def join(self, index: IntArray) -> bytes:
        """The bytes of some lines, in the order of ``index``, which must rise."""
        if len(index) == len(self.starts):
            return self.data
        keep = np.zeros(len(self.starts), dtype=np.bool_)
        keep[index] = True
        mask = np.repeat(keep, self.ends - self.starts)
        return np.frombuffer(self.data, dtype=np.uint8)[mask].tobytes()


def split(data: bytes) -> Lines:
    """Line table of ``data``; only ``\\n`` ends a line."""
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n")).astype(np.int64) + 1
    if data and not data.endswith(b"\n"):
        ends = np.append(ends, len(data))
    return Lines(data, np.concatenate(([0], ends[:-1])).astype(np.int64), ends)


def unreadable(lines: Lines) -> dict[int, str]:
    """Lines that would damage their neighbours in a CSV parser, each with the reason."""
    array = np.frombuffer(lines.data, dtype=np.uint8)
    if not len(array):
        return {}
    reasons: dict[int, str] = {}
    stray = (array == ord("\r")) & (np.append(array[1:], ord("\n")) != ord("\n"))
    for index in np.unique(np.searchsorted(lines.ends, np.flatnonzero(stray), side="right")).tolist():
        reasons[index] = "carriage return inside the line"
    quotes = np.add.reduceat((array == ord('"')).astype(np.int64), lines.starts)
    for index in np.flatnonzero(quotes % 2).tolist():
        reasons[index] = "unbalanced quotes"
    for index in _not_utf8(lines):
        reasons[index] = NOT_UTF8
    if marked(lines.data):
        for index, start in enumerate(lines.starts.tolist()):
            if lines.data.startswith(codecs.BOM_UTF8, start):
                reasons[index] = "byte order mark inside the file"
    return reasons


def marked(data: bytes) -> bool:
    """Whether there is a UTF-8 byte order mark, which Arrow skips where what it is given begins with one."""
    # The search for one rare byte first is ten times as fast.
    return codecs.BOM_UTF8[-1:] in data and codecs.BOM_UTF8 in data


def blank(lines: Lines) -> IntArray:
    """Indices of lines that hold nothing but a line end."""
    array = np.frombuffer(lines.data, dtype=np.uint8)
    length = lines.ends - lines.starts
    only_end = (length == 1) & (array[lines.starts] == ord("\n"))
    only_end |= (length == 2) & (array[lines.starts] == ord("\r"))
    return np.flatnonzero(only_end).astype(np.int64)


def _not_utf8(lines: Lines) -> list[int]:
    try:
        lines.data.decode("utf-8")
    except UnicodeDecodeError:
        return [index for index in range(len(lines.starts)) if not _is_utf8(lines, index)]
    return []


def _is_utf8(lines: Lines, index: int) -> bool:
    try:
        lines.data[lines.starts[index] : lines.ends[index]].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
