"""Which parsed rows are good: every cell of its kind, every rule of the layout kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.read.quarantine import Refusal
from tilewatch.tasks.read.tabular import cells, losses
from tilewatch.tasks.read.tabular.arrow_columns import one_array
from tilewatch.tasks.read.tabular.csv_parse import parse
from tilewatch.tasks.read.tabular.layout import Header, Kind
from tilewatch.tasks.read.tabular.lines import Block, IntArray
from tilewatch.tasks.read.tabular.losses import Loss, merged

_SECOND_NS = 1_000_000_000
_REMEMBERED_TEXTS = 10_000

_Broken = tuple[str, str, str, cells.BoolArray]
"""Column, rule, what is expected, and a mask of the rows that break it."""


@dataclass(frozen=True)
class Wrong:
    """What is wrong with one row: the rule it breaks, the field and its text, and a sentence."""

    rule: str
    reason: str
    field: str | None = None
    value: str | None = None

    def refusal(self, source_file: str, line: int, raw_text: str) -> Refusal:
        """The refusal of the row in ``line``."""
        return Refusal(source_file, line, self.rule, self.reason, self.field, self.value, raw_text)


class GoodTexts:
    """Texts that were found good, by column: they repeat over a file, so most are looked at once."""

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {}

    def hold(self, column: str, texts: pa.Array, pattern: str | None) -> bool:
        """True where no text has blanks around it and all match the pattern."""
        seen = self._seen.setdefault(column, set())
        new = [text for text in texts.to_pylist() if text not in seen]
        if not new:
            return True
        array = pa.array(new, pa.string())
        if not pc.utf8_trim_whitespace(array).equals(array):
            return False
        if pattern is not None and pc.any(_strange(array, pattern)).as_py():
            return False
        if len(seen) < _REMEMBERED_TEXTS:
            seen.update(new)
        return True


def fast_rows(header: Header, block: Block, good: GoodTexts) -> dict[str, pa.Array] | None:
    """Typed columns of a block in which every line is a good row, else None.

    What may be a time that lost digits to scientific notation is left to the careful way, which sees the
    text: a positive exponent anywhere, or a time stamp of whole seconds. So are time stamps that all are
    multiples of 100 ns: they may have lost their decimals.
    """
    if b"+" in block.data and (b"E+" in block.data or b"e+" in block.data):
        return None
    try:
        parsed = parse(header, block.data, header.fast_types)
    except pa.ArrowException:
        return None
    if parsed.num_rows != block.line_count:
        return None
    columns: dict[str, pa.Array] = {}
    for name, kind in header.kinds.items():
        values = one_array(parsed.column(name))
        if kind.is_time:
            values = cells.ns_from_decimals(values)
            if kind is Kind.TIMESTAMP and values is not None and _needs_text(values):
                return None
        elif kind is Kind.TEXT and not good.hold(name, values.dictionary, header.fields[name].pattern):
            return None
        if values is None:
            return None
        columns[name] = values
    return columns if next(_broken_values(header, columns), None) is None else None


def _needs_text(times_ns: pa.Array) -> bool:
    times = pc.drop_null(times_ns).to_numpy()
    if (times % _SECOND_NS == 0).any():
        return True
    # A look at the first ones spares most files the second pass.
    return bool(len(times)) and not (times[:64] % 100).any() and not (times % 100).any()


@dataclass(frozen=True)
class Checked:
    """Rows that were looked at cell by cell: typed columns of the good ones, their row numbers, the rest.

    ``wrong`` rows are refused one by one, ``lost`` ones by the column; ``aside`` rows are no rows of the
    table. ``coarse`` says that the time stamps went through a double.
    """

    values: dict[str, pa.Array]
    good: IntArray
    wrong: dict[int, Wrong]
    lost: dict[int, Wrong]
    aside: dict[int, str]
    coarse: bool

    def losses(self, place: Callable[[int], tuple[int, str]]) -> list[Loss]:
        """The lost rows by column; ``place`` gives the line and the text of a row."""
        each = []
        for row, why in sorted(self.lost.items()):
            line, text = place(row)
            each.append(Loss(why.field or "", why.rule, why.reason, 1, line, why.value, text))
        return merged(each)


def careful_rows(header: Header, text: pa.Table) -> Checked:
    """Typed columns of the good rows of ``text``, and what is wrong with the others."""
    columns: dict[str, pa.Array] = {}
    wrong: dict[int, Wrong] = {}
    lost: dict[int, Wrong] = {}
    coarse = False
    for name, kind in header.kinds.items():
        raw = one_array(text.column(name))
        columns[name], bad = cells.typed(raw, kind)
        for rule, what, mask in losses.lost(raw, kind, columns[name], bad):
            for row in np.flatnonzero(mask).tolist():
                lost.setdefault(row, Wrong(rule, what, name, raw[row].as_py()))
            bad &= ~mask
        for row in np.flatnonzero(bad).tolist():
            value = raw[row].as_py()
            reason = f"{name}: expected {kind.value}, found {value!r}"
            wrong.setdefault(row, Wrong("cell_type", reason, name, value))
        coarse = coarse or (kind is Kind.TIMESTAMP and losses.coarse(raw, columns[name]))
    for name, rule, expected, mask in chain(_broken_values(header, columns), _broken_forms(header, columns)):
        for row in np.flatnonzero(mask).tolist():
            value = text.column(name)[row].as_py()
            wrong.setdefault(row, Wrong(rule, f"{name}: {expected}, found {value!r}", name, value))
    lost = {row: why for row, why in lost.items() if row not in wrong or wrong[row].rule == "required"}
    aside = _aside(header, columns, {row for row, why in wrong.items() if why.rule == "required"})
    wrong = {row: why for row, why in wrong.items() if row not in lost and row not in aside}
    out = np.fromiter({*wrong, *lost, *aside}, np.int64)
    good = np.setdiff1d(np.arange(text.num_rows), out)
    values = {name: _only(values, good) for name, values in columns.items()}
    return Checked(values, good, wrong, lost, aside, coarse)


def _aside(header: Header, columns: dict[str, pa.Array], incomplete: set[int]) -> dict[int, str]:
    """Rows without a required field that are no rows of the table at all, with the text that says so."""
    if header.aside is None or not incomplete:
        return {}
    column, pattern = header.aside
    named = next((name for name, spec in header.fields.items() if spec.column == column), None)
    if named is None:
        return {}
    texts = {row: columns[named][row].as_py() for row in incomplete}
    return {row: text for row, text in sorted(texts.items()) if text and re.fullmatch(pattern, text)}


def _only(values: pa.Array, rows: IntArray) -> pa.Array:
    """Some rows; a dictionary forgets the texts of the others, which later steps could not parse."""
    chosen = values.take(pa.array(rows))
    if pa.types.is_dictionary(chosen.type):
        return chosen.cast(pa.string()).dictionary_encode()
    return chosen


def _broken_values(header: Header, columns: dict[str, pa.Array]) -> Iterator[_Broken]:
    """Rules about values that rows break."""
    for name, spec in header.fields.items():
        values = columns[name]
        if spec.required and values.null_count:
            yield name, "required", "a value is required", values.is_null().to_numpy(zero_copy_only=False)
        if spec.minimum is None:
            continue
        least = pc.min(values).as_py()
        if least is not None and least < spec.minimum:
            low = pc.fill_null(pc.less(values, spec.minimum), False)
            yield name, "range", f"at least {spec.minimum} is expected", low.to_numpy(zero_copy_only=False)


def _broken_forms(header: Header, columns: dict[str, pa.Array]) -> Iterator[_Broken]:
    """Rules about the form of texts that rows break."""
    for name, spec in header.fields.items():
        if spec.pattern is not None:
            values = columns[name]
            strange = _strange(values.dictionary, spec.pattern).take(values.indices)
            mask = pc.fill_null(strange, False).to_numpy(zero_copy_only=False)
            yield name, "cell_form", "another form of text is expected", mask


def _strange(texts: pa.Array, pattern: str) -> pa.Array:
    return pc.invert(pc.match_substring_regex(texts, f"^(?:{pattern})$"))
