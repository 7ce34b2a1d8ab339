"""CSV rows as typed Arrow blocks with exact line numbers; rows that do not fit are refused, one by one.

Every block takes the fast way first: one typed parse that accepts all rows or none. A block with anything odd
in it takes the careful way: all cells as text, each checked, so that only the odd rows are refused. Both ways
give the same values for the same row.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from tilewatch.tasks.read.quarantine import Refusal
from tilewatch.tasks.read.tabular.arrow_columns import one_array
from tilewatch.tasks.read.tabular.csv_parse import numeric_share, parse_text
from tilewatch.tasks.read.tabular.csv_rules import GoodTexts, Wrong, careful_rows, fast_rows
from tilewatch.tasks.read.tabular.encodings import GB18030, text_encoding
from tilewatch.tasks.read.tabular.layout import (
    SEPARATORS,
    Header,
    HeaderError,
    Layout,
    is_header,
    match_header,
)
from tilewatch.tasks.read.tabular.lines import (
    NOT_UTF8,
    Block,
    IntArray,
    blank,
    blocks,
    marked,
    parts,
    split,
    unreadable,
)
from tilewatch.tasks.read.tabular.losses import Loss, merged

_PROBE_LINES = 200
_NO_ENCODING = "the file is in neither UTF-8, UTF-16 nor GB18030"
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs"}
_THREADS = min(4, os.cpu_count() or 1)

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class RowBlock:
    """Good rows of one block: values by the column's name in the file, the line of every row, counted from 1.

    ``refusals`` are the rows that are not good, ``losses`` those whose cells were damaged by the column, and
    ``aside`` counts rows that are none of the table. ``coarse``: the time stamps went through a double.
    """

    header: Header
    values: dict[str, pa.Array]
    lines: IntArray
    refusals: list[Refusal] = field(default_factory=list)
    blank_lines: int = 0
    losses: list[Loss] = field(default_factory=list)
    aside: Counter[str] = field(default_factory=Counter)
    coarse: bool = False

    def column(self, name: str) -> pa.Array | None:
        """Values of a field of the layout, or None where the file has no such column."""
        for header_name, spec in self.header.fields.items():
            if spec.column == name:
                return self.values[header_name]
        return None

    def counters(self) -> list[pa.Array]:
        """Values of the counters, in the order of ``header.counters``."""
        return [self.values[name] for name in self.header.counters]

    @property
    def outcome(self) -> BlockOutcome:
        """What the facts of a file sum up over its blocks."""
        refused = len(self.refusals) + sum(loss.rows for loss in self.losses)
        coarse = len(self.lines) if self.coarse else 0
        return BlockOutcome(len(self.lines), refused, self.blank_lines, coarse, self.losses, self.aside)


@dataclass(frozen=True)
class BlockOutcome:
    """Counts of one block: rows, refused, blank lines, rows with coarse times; losses, rows set aside."""

    rows: int
    refused: int
    blank_lines: int
    coarse_times: int
    losses: list[Loss]
    aside: Counter[str]


@dataclass
class CsvFile:
    """One CSV file being read: iterate ``blocks()``, then look at ``facts`` and ``refusals``.

    ``source_file`` is the name that refusals carry. ``refusals`` holds those of the whole file, such as a
    header that does not match or a column that lost its digits; those of single rows come with their block.
    """

    path: Path
    source_file: str
    layout: Layout
    refusals: list[Refusal] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=lambda: {"rows": 0, "refused": 0, "blank_lines": 0})
    _losses: list[Loss] = field(default_factory=list)

    @cached_property
    def encoding(self) -> str | None:
        """That of the text, looked for where it is more than ASCII; None for neither UTF-8 nor GB18030."""
        return text_encoding(self.path)

    def blocks(self) -> Iterator[RowBlock]:
        """Row blocks in file order. A file that is no such CSV gives none and one refusal."""
        return self.made(lambda block: block)

    def made(self, make: Callable[[RowBlock], R]) -> Iterator[R]:
        """What ``make`` makes of every row block, in file order; the next ones are made by other threads.

        ``facts`` count a block when it is handed out.
        """
        source = blocks(self.path)
        first = next(source, None)
        if first is None:
            self.refuse("empty_file", "the file has no bytes", None)
            return
        header = self.header(first.data)
        body = next(source, None)
        if header is None or body is None:
            return
        header = _without_text_counters(header, self.in_utf8(body))
        self.facts["ignored_columns"] = list(header.ignored)
        if not header.kinds:
            self.refuse("header", "no column of this format and no column of numbers", None)
            return

        good = GoodTexts()

        def work(part: tuple[Header, Block]) -> tuple[BlockOutcome, R]:
            rows = self._read(*part, good)
            return rows.outcome, make(rows)

        for outcome, result in ahead(self._parts(header, chain((body,), source)), work):
            self.count(outcome)
            yield result
        self.close()

    def header(self, line: bytes) -> Header | None:
        """The header line of the file; None, and a refusal, where it does not belong to the layout."""
        try:
            header = match_header(self._text(line), self.layout)
        except HeaderError as error:
            self.refuse("header", str(error), line[:4000].decode("utf-8", "backslashreplace"))
            return None
        self.facts["columns"] = list(header.names)
        if header.separator != SEPARATORS[0]:
            self.found(f"cells are separated by {_NAMES[header.separator]}")
        return header

    def in_utf8(self, block: Block) -> Block:
        """A block of a file in GB18030 as UTF-8; any other one as it is."""
        return replace(block, data=self._text(block.data))

    def found(self, what: str) -> None:
        """Remember something odd about the form of the file, once, for its account."""
        known = self.facts.setdefault("found", [])
        if what not in known:
            known.append(what)

    def count(self, outcome: BlockOutcome) -> None:
        """Add the counts of a block that is about to be handed out to the facts."""
        for name in ("rows", "refused", "blank_lines"):
            self.facts[name] += getattr(outcome, name)
        if outcome.coarse_times:
            self.facts["coarse_times"] = self.facts.get("coarse_times", 0) + outcome.coarse_times
        if outcome.aside:
            self.facts["aside"] = dict(Counter(self.facts.get("aside", {})) + outcome.aside)
        self._losses += outcome.losses

    def close(self) -> None:
        """Refuse what was lost by the column, once a column, when all blocks are counted."""
        for loss in merged(self._losses):
            self.refusals.append(loss.refusal(self.source_file))
            together = self.facts.setdefault("refused_together", {})
            together[f"{loss.rule} ({loss.field})"] = loss.rows - 1

    def refuse(self, rule: str, reason: str, raw: str | None) -> None:
        """Refuse the whole file."""
        self.refusals.append(Refusal(self.source_file, None, rule, reason, raw_text=raw))

    def _text(self, data: bytes) -> bytes:
        if data.isascii() or self.encoding != GB18030:
            return data
        self.found("the text is in GB18030")
        return data.decode("gb18030", "replace").encode()

    def _parts(self, header: Header, source: Iterable[Block]) -> Iterator[tuple[Header, Block]]:
        """Blocks with the header they are under: an export appended to another brings its own along."""
        needle = max((name for name, f in header.fields.items() if f.required), key=len, default="").encode()
        for block in source:
            if needle and needle in block.data:
                for line, part in parts(
                    block, lambda text: needle in text and is_header(self._text(text), self.layout)
                ):
                    if line is not None:
                        header = match_header(self._text(line), self.layout)
                        header = _without_text_counters(header, self.in_utf8(part))
                        self.found(f"a second header in line {part.first_line - 1}: one export after another")
                    if part.line_count:
                        yield header, part
            else:
                yield header, block

    def _read(self, header: Header, block: Block, good: GoodTexts) -> RowBlock:
        if block.unterminated:
            self.facts["unterminated_last_line"] = block.first_line
        ascii_only = block.data.isascii()
        if not ascii_only:
            block = self.in_utf8(block)
        values = fast_rows(header, block, good) if ascii_only or not marked(block.data) else None
        if values is None:
            return self._read_carefully(header, block)
        return RowBlock(header, values, np.arange(block.line_count, dtype=np.int64) + block.first_line)

    def _read_carefully(self, header: Header, block: Block) -> RowBlock:
        lines = split(block.data)
        odd, empty = unreadable(lines), blank(lines)
        skipped = np.concatenate((empty, np.fromiter(odd, np.int64, len(odd))))
        text, index, broken = parse_text(header, lines, np.setdiff1d(np.arange(len(lines.starts)), skipped))
        checked = careful_rows(header, text)
        if NOT_UTF8 in odd.values() and self.encoding is None:
            odd = {line: _NO_ENCODING if why == NOT_UTF8 else why for line, why in odd.items()}
        reasons = {line: Wrong("row_structure", reason) for line, reason in (odd | broken).items()}
        reasons |= {int(index[row]): reason for row, reason in checked.wrong.items()}
        refusals = [
            w.refusal(self.source_file, block.first_line + line, lines.text(line))
            for line, w in sorted(reasons.items())
        ]
        return RowBlock(
            header,
            checked.values,
            index[checked.good] + block.first_line,
            refusals,
            len(empty),
            checked.losses(lambda row: (block.first_line + int(index[row]), lines.text(int(index[row])))),
            Counter(checked.aside.values()),
            checked.coarse,
        )


def ahead(items: Iterator[T], work: Callable[[T], R], threads: int = _THREADS) -> Iterator[R]:
    """Results of ``work`` in order, the next ones made by other threads while this one is being used."""
    with ThreadPoolExecutor(max_workers=threads) as pool:
        pending: deque[Future[R]] = deque()
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _without_text_counters(header: Header, block: Block) -> Header:
    """The header without those further columns whose first cells are mostly no numbers."""
    if not header.counters:
        return header
    lines = split(block.data)
    usable = np.setdiff1d(np.arange(len(lines.starts))[:_PROBE_LINES], list(unreadable(lines)))
    text, *_ = parse_text(header, lines, usable)
    shares = {name: numeric_share(one_array(text.column(name))) for name in header.counters}
    words = tuple(name for name, share in shares.items() if share is not None and share < 0.5)
    kept = tuple(name for name in header.counters if name not in words)
    return replace(header, counters=kept, ignored=header.ignored + words)
