"""CSV records with line ends inside quoted cells, block by block, each with the line it starts on.

Arrow's parser decides where a record ends. A record of the wrong width that spans lines may have swallowed
good ones behind a stray quote: only its first line is refused and parsing resumes on the next.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tilewatch.tasks.read.tabular.csv_parse import wrong_width
from tilewatch.tasks.read.tabular.csv_rows import CsvFile, RowBlock
from tilewatch.tasks.read.tabular.csv_rules import Wrong, careful_rows
from tilewatch.tasks.read.tabular.layout import BYTE_ORDER_MARK, Header
from tilewatch.tasks.read.tabular.lines import BLOCK_BYTES, LONGEST_LINE, Block, IntArray, Lines, split

_LONGEST_RECORD = 4 * BLOCK_BYTES
_STRAY_RETURN = re.compile(rb"\r(?!\n)")
_REPLACEMENT = "\ufffd".encode()


def record_blocks(file: CsvFile) -> Iterator[RowBlock]:
    """Row blocks of a CSV with multi-line cells; ``lines`` are those on which the records start.

    Bytes that are not UTF-8, byte order marks and carriage returns inside a line are shown as U+FFFD.
    """
    with file.path.open("rb") as stream:
        header_line = stream.readline(LONGEST_LINE)
        if not header_line:
            file.refuse("empty_file", "the file has no bytes", None)
            return
        header = file.header(header_line)
        if header is None:
            return
        file.facts["ignored_columns"] = list(header.ignored)
        line, rest, more = 2, b"", True
        while more or rest:
            data, more = _fill(file, stream, rest) if more else (rest, False)
            if not data:
                break
            block, used_lines, used_bytes = _read(file.source_file, header, data, line, more)
            line, rest = line + used_lines, data[used_bytes:]
            file.count(block.outcome)
            yield block
        file.close()


def _fill(file: CsvFile, stream: BinaryIO, rest: bytes) -> tuple[bytes, bool]:
    """More whole lines behind ``rest``, and whether the file goes on."""
    piece = stream.read(BLOCK_BYTES) + stream.readline()
    text = _STRAY_RETURN.sub(_REPLACEMENT, file.in_utf8(Block(piece, 0, 0)).data)
    # Arrow skips a byte order mark where a buffer begins with one: the line would vanish or lose a character.
    shown = text.decode("utf-8", "replace").replace(BYTE_ORDER_MARK, _REPLACEMENT.decode())
    return rest + shown.encode(), bool(piece)


@dataclass(frozen=True)
class _Records:
    """Records of a buffer: text of the well-formed ones, and for every record its first line and its span."""

    text: pa.Table
    starts: IntArray
    spans: IntArray
    formed: IntArray
    malformed: dict[int, str]


def _read(
    source_file: str, header: Header, data: bytes, first_line: int, more: bool
) -> tuple[RowBlock, int, int]:
    """One block of rows from the front of ``data``, and how many lines and bytes of it are used up."""
    lines = split(data)
    records = _parse(header, data)
    total = len(records.starts)
    swallowed = next((i for i in sorted(records.malformed) if records.spans[i] > 1), None)
    if more and total > 1 and (swallowed is None or swallowed == total - 1):
        kept, used = total - 1, int(records.starts[-1])
    elif more and total == 1 and len(data) < _LONGEST_RECORD:
        kept, used = 0, 0
    elif swallowed is not None:
        kept, used = swallowed + 1, int(records.starts[swallowed]) + 1
    else:
        kept, used = total, len(lines.starts)
    formed = records.formed[records.formed < kept]
    block = _good_rows(source_file, header, lines, first_line, records, formed, kept)
    used_bytes = int(lines.starts[used]) if used < len(lines.starts) else len(data)
    return block, used, used_bytes


def _good_rows(
    source_file: str,
    header: Header,
    lines: Lines,
    first_line: int,
    records: _Records,
    formed: IntArray,
    kept: int,
) -> RowBlock:
    checked = careful_rows(header, records.text.slice(0, len(formed)))
    reasons = {i: Wrong("row_structure", why) for i, why in records.malformed.items() if i < kept}
    reasons |= {int(formed[row]): why for row, why in checked.wrong.items()}

    def raw(i: int) -> str:
        at = int(records.starts[i])
        span = 1 if i in records.malformed else int(records.spans[i])
        # A quote that is open at the end has the last line end in its cell: one line more than there is.
        return "\n".join(lines.text(k) for k in range(at, min(at + span, len(lines.starts))))

    placed = [(first_line + int(records.starts[i]), raw(i), why) for i, why in sorted(reasons.items())]
    refusals = [why.refusal(source_file, line, text) for line, text, why in placed if text]
    return RowBlock(
        header,
        checked.values,
        records.starts[formed[checked.good]] + first_line,
        refusals,
        len(placed) - len(refusals),
        checked.losses(lambda row: (first_line + int(records.starts[formed[row]]), raw(int(formed[row])))),
        Counter(checked.aside.values()),
        checked.coarse,
    )


def _parse(header: Header, data: bytes) -> _Records:
    invalid: list[csv.InvalidRow] = []

    def skip(row: csv.InvalidRow) -> str:
        invalid.append(row)
        return "skip"

    text = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(
            use_threads=False, column_names=list(header.names), block_size=max(len(data) + 1, 1 << 16)
        ),
        parse_options=csv.ParseOptions(
            delimiter=header.separator,
            ignore_empty_lines=False,
            newlines_in_values=True,
            invalid_row_handler=skip,
        ),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(header.names, pa.string())),
    )
    total = text.num_rows + len(invalid)
    malformed = {row.number - 1: wrong_width(row) for row in invalid}
    formed = np.setdiff1d(np.arange(total), np.fromiter(malformed, np.int64, len(malformed)))
    spans = np.ones(total, dtype=np.int64)
    for name in header.names:
        column = text.column(name)
        spans[formed] += pc.fill_null(pc.count_substring(column, "\n"), 0).to_numpy()
    for row in invalid:
        spans[row.number - 1] += row.text.rstrip("\r\n").count("\n")
    starts = np.concatenate(([0], np.cumsum(spans)[:-1])).astype(np.int64) if total else spans
    return _Records(text, starts, spans, formed, malformed)
