"""CSV rows as typed Arrow blocks with exact line numbers; rows that do not fit are refused, one by one.

Every block takes the fast way first: one typed parse that accepts all rows or none. A block with anything odd
in it takes the careful way: all cells as text, each checked, so that only the odd rows are refused. Both ways
give the same values for the same row.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from tilewatch.tasks.read.quarantine import Refusal
from tilewatch.tasks.read.tabular.arrow_columns import one_array
from tilewatch.tasks.read.tabular.csv_parse import numeric_share, parse_text
from tilewatch.tasks.read.tabular.csv_rules import GoodTexts, Wrong, careful_rows, fast_rows
from tilewatch.tasks.read.tabular.layout import Header, HeaderError, Layout, match_header
from tilewatch.tasks.read.tabular.lines import Block, IntArray, blank, blocks, split, unreadable

_PROBE_LINES = 200
_THREADS = min(4, os.cpu_count() or 1)

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class RowBlock:
    """Good rows of one block: values by the column's name in the file, the line of every row, counted from 1.

    ``refusals`` are the rows that are not good.
    """

    header: Header
    values: dict[str, pa.Array]
    lines: IntArray
    refusals: list[Refusal] = field(default_factory=list)
    blank_lines: int = 0

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
    def counts(self) -> dict[str, int]:
        """What the facts of a file sum up over its blocks."""
        return {"rows": len(self.lines), "refused": len(self.refusals), "blank_lines": self.blank_lines}


@dataclass
class CsvFile:
    """One CSV file being read: iterate ``blocks()``, then look at ``facts`` and ``refusals``.

    ``source_file`` is the name that refusals carry. ``refusals`` holds those of the whole file, such as a
    header that does not match; those of single rows come with their block.
    """

    path: Path
    source_file: str
    layout: Layout
    refusals: list[Refusal] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=lambda: {"rows": 0, "refused": 0, "blank_lines": 0})

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
        try:
            header = match_header(first.data, self.layout)
        except HeaderError as error:
            self.refuse("header", str(error), first.data[:4000].decode("utf-8", "backslashreplace"))
            return
        self.facts["columns"] = list(header.names)
        body = next(source, None)
        if body is None:
            return
        header = _without_text_counters(header, body)
        self.facts["ignored_columns"] = list(header.ignored)
        if not header.kinds:
            self.refuse("header", "no column of this format and no column of numbers", None)
            return

        good = GoodTexts()

        def work(block: Block) -> tuple[dict[str, int], R]:
            rows = self._read(header, block, good)
            return rows.counts, make(rows)

        for counts, result in ahead(chain((body,), source), work):
            self.count(counts)
            yield result

    def _read(self, header: Header, block: Block, good: GoodTexts) -> RowBlock:
        if block.unterminated:
            self.facts["unterminated_last_line"] = block.first_line
        values = fast_rows(header, block, good)
        if values is None:
            return self._read_carefully(header, block)
        return RowBlock(header, values, np.arange(block.line_count, dtype=np.int64) + block.first_line)

    def _read_carefully(self, header: Header, block: Block) -> RowBlock:
        lines = split(block.data)
        odd, empty = unreadable(lines), blank(lines)
        skipped = np.concatenate((empty, np.fromiter(odd, np.int64, len(odd))))
        text, index, broken = parse_text(header, lines, np.setdiff1d(np.arange(len(lines.starts)), skipped))
        values, good, wrong = careful_rows(header, text)
        reasons = {line: Wrong("row_structure", reason) for line, reason in (odd | broken).items()}
        reasons |= {int(index[row]): reason for row, reason in wrong.items()}
        refusals = [
            Refusal(
                self.source_file,
                block.first_line + line,
                w.rule,
                w.reason,
                w.field,
                w.value,
                lines.text(line),
            )
            for line, w in sorted(reasons.items())
        ]
        return RowBlock(header, values, index[good] + block.first_line, refusals, len(empty))

    def count(self, counts: dict[str, int]) -> None:
        """Add the counts of a block that is about to be handed out to the facts."""
        for name, count in counts.items():
            self.facts[name] += count

    def refuse(self, rule: str, reason: str, raw: str | None) -> None:
        """Refuse the whole file."""
        self.refusals.append(Refusal(self.source_file, None, rule, reason, raw_text=raw))


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
