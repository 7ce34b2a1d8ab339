"""Cells that a program damaged when it saved the file: what it did to them, in words.

A spreadsheet shows 1.73148E+15 for a start time and saves what it shows; a locale writes 12,34 or 1,234.5.
Such cells come by the column, so they are refused by the column, once a file, not once a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.read.quarantine import Refusal
from tilewatch.tasks.read.tabular.cells import BoolArray
from tilewatch.tasks.read.tabular.layout import Kind

DIGITS_LOST = "digits_lost"
NUMBER_FORM = "number_form"
BELOW_UNIT = "below_a_nanosecond"

_AGAIN = "export the file again, or save it with every column as text"
_SCIENTIFIC = r"^[+-]?[0-9](?:\.[0-9]*)?[eE]\+?[0-9]+$"
_LONG_FLOAT = r"^-?[0-9]{16,}\.0*$"
_FORMS = (
    (r"^-?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?$", "saved with thousands separators or a decimal comma"),
    (r"^-?[0-9]+,[0-9]*$", "saved with a decimal comma"),
    (r"^-?[0-9]{1,3}(\.[0-9]{3})+,[0-9]*$", "saved with thousands separators, with a decimal comma"),
    (r"^-?[0-9]{1,3}(\.[0-9]{3}){2,}$", "saved with thousands separators"),
    (r"^-?[0-9]{1,3}([\s'’][0-9]{3})+([.,][0-9]*)?$", "saved with thousands separators"),
)
# Once a column has decimal commas, a point in it may separate thousands.
_POINTED = r"^-?[0-9]{1,3}\.[0-9]{3}$"
_TEN_US = 10_000
_TIMES_FROM_NS = 10**18
# Beyond 2^50 µs (2005) a double steps by a quarter of a microsecond and is written with one decimal.
_COARSE_FROM_NS = (1 << 50) * 1000


@dataclass(frozen=True)
class Loss:
    """What happened to the cells of one column: the rule that refuses them, how many rows, the first one."""

    field: str
    rule: str
    what: str
    rows: int
    line: int
    value: str | None
    raw_text: str | None

    def refusal(self, source_file: str) -> Refusal:
        """One refusal for all rows of the file that lost the same in the same column."""
        where = f"{self.rows} rows of the file, the first in line {self.line}"
        reason = f"{self.field}: {self.what}; {where}: {_AGAIN}"
        return Refusal(source_file, self.line, self.rule, reason, self.field, self.value, self.raw_text)


def merged(losses: Iterable[Loss]) -> list[Loss]:
    """One loss a column and rule, in the order in which they appear first."""
    found: dict[tuple[str, str], Loss] = {}
    for loss in losses:
        key = (loss.field, loss.rule)
        known = found.get(key)
        found[key] = loss if known is None else replace(known, rows=known.rows + loss.rows)
    return list(found.values())


def lost(text: pa.Array, kind: Kind, values: pa.Array, bad: BoolArray) -> list[tuple[str, str, BoolArray]]:
    """Rule, what happened, and which cells: of a column as ``text``, read as ``values``, ``bad`` not read."""
    if kind is Kind.TEXT or not len(text):
        return []
    text = pc.utf8_trim_whitespace(text)
    found: list[tuple[str, str, BoolArray]] = []
    if bad.any():
        found += _damaged(text, kind, bad)
    if kind is Kind.TIMESTAMP and (cut := _cut_to_15_digits(text, values)) is not None:
        found.append((DIGITS_LOST, "saved with 15 digits: start times lost", cut))
    if kind.is_time:
        small = _mask(pc.and_(pc.equal(values, 0), pc.match_substring_regex(text, r"^[^eE]*[1-9]")))
        if small.any():
            what = "less than half a nanosecond, which would be stored as 0"
            found.append((BELOW_UNIT, what, small))
    return found


def _damaged(text: pa.Array, kind: Kind, bad: BoolArray) -> list[tuple[str, str, BoolArray]]:
    found = []
    if kind is not Kind.NUMBER:
        lost_digits = bad & _matches(text, _SCIENTIFIC)
        if lost_digits.any():
            first = text[int(np.flatnonzero(lost_digits)[0])].as_py()
            digits = sum(c.isdigit() for c in first.lower().split("e")[0])
            what = "start times lost" if kind is Kind.TIMESTAMP else "the others are lost"
            found.append((DIGITS_LOST, f"saved with {digits} digits: {what}", lost_digits))
        if (long := bad & _matches(text, _LONG_FLOAT)).any():
            found.append((DIGITS_LOST, "saved as a float of more than 15 digits: the last are lost", long))
    rest = bad.copy()
    for form, what in _FORMS:
        if (formed := rest & _matches(text, form)).any():
            pointed = ~bad & _matches(text, _POINTED) if what.endswith("with a decimal comma") else formed
            found.append((NUMBER_FORM, what, formed | pointed))
            rest &= ~formed
    return found


def _cut_to_15_digits(text: pa.Array, values: pa.Array) -> BoolArray | None:
    """All time stamps of a block without decimals and with a 0 at the end: a spreadsheet keeps 15 digits."""
    times = pc.drop_null(values)
    if len(times) < 2 or int(pc.min(times).as_py()) < _TIMES_FROM_NS or (times.to_numpy() % _TEN_US).any():
        return None
    present = values.is_valid().to_numpy(zero_copy_only=False)
    whole = _matches(text, r"^[0-9]+(\.0?)?$")
    return present if bool((whole | ~present).all()) else None


def coarse(text: pa.Array, values: pa.Array) -> bool:
    """Whether time stamps went through a double: none has two decimals, profilers write three."""
    times = pc.drop_null(values)
    if not len(times) or int(pc.max(times).as_py()) < _COARSE_FROM_NS or (times.to_numpy() % 100).any():
        return False
    fine = _matches(pc.utf8_trim_whitespace(text), r"\.[0-9]{2,}$")
    return not bool(fine.any())


def _matches(text: pa.Array, pattern: str) -> BoolArray:
    return _mask(pc.match_substring_regex(text, pattern))


def _mask(flags: pa.Array) -> BoolArray:
    mask: BoolArray = pc.fill_null(flags, False).to_numpy(zero_copy_only=False)
    return mask
