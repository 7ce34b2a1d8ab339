"""What a CSV format looks like: its columns under every header name they have had, matched by name."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import pyarrow as pa

from tilewatch.data_contracts.errors import TilewatchError

NULL_TOKENS = ("", "N/A", "NA", "nan", "NaN", "-nan", "inf", "-inf", "Inf")
"""Texts that mean "no value" in any of the files; a counter that is not finite is no value either."""

BYTE_ORDER_MARK = "\ufeff"

_PANDAS_INDEX = re.compile(r"Unnamed: \d+(\.\d+)*")


SEPARATORS = (",", ";", "\t")
"""What stands between cells: a comma as the profilers write it, else what a spreadsheet made of it."""


class Kind(Enum):
    """How a cell's text becomes a value."""

    TEXT = "text"
    INTEGER = "integer"
    TIMESTAMP = "microseconds since an epoch, at most 3 decimals"
    DURATION = "microseconds, at most 6 decimals"
    NUMBER = "number"

    @property
    def is_time(self) -> bool:
        """True where the cell holds decimal microseconds that are stored as int64 nanoseconds."""
        return self in (Kind.TIMESTAMP, Kind.DURATION)


FAST_TYPES = {
    Kind.TEXT: pa.dictionary(pa.int32(), pa.string()),
    Kind.INTEGER: pa.int64(),
    Kind.TIMESTAMP: pa.decimal128(22, 3),
    Kind.DURATION: pa.decimal128(28, 6),
    Kind.NUMBER: pa.float64(),
}
"""Arrow types the CSV parser converts to; a cell that does not fit sends its block the careful way."""


@dataclass(frozen=True)
class Field:
    """One column of a format.

    ``headers`` are the names it has had, ``pattern`` a regular expression that every text of it matches in
    full, ``minimum`` the least value (nanoseconds for times). A row without a ``required`` field is refused.
    """

    column: str
    headers: tuple[str, ...]
    kind: Kind
    required: bool = False
    pattern: str | None = None
    minimum: int | None = None


@dataclass(frozen=True)
class Layout:
    """A CSV format. With ``counters`` every further numeric column is kept under its own header.

    Names in ``counters`` keep these columns alone: the others are not even parsed.

    ``aside`` names a field and the texts (a regular expression) of rows that are no rows of the table where
    they lack a required field: they are left out and counted, not refused.
    """

    table: str
    fields: tuple[Field, ...]
    counters: bool | tuple[str, ...] = False
    aside: tuple[str, str] | None = None


@dataclass(frozen=True)
class Header:
    """The header line of one file, matched against a layout.

    ``names`` are unique stand-ins for the file's columns in file order; ``fields`` and ``counters`` map
    such a name to what it holds; every other column is ignored and named in ``ignored``.
    """

    names: tuple[str, ...]
    fields: dict[str, Field]
    counters: tuple[str, ...] = ()
    ignored: tuple[str, ...] = field(default=())
    separator: str = SEPARATORS[0]
    aside: tuple[str, str] | None = None

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """Kind of every column that is read, by name."""
        return {name: f.kind for name, f in self.fields.items()} | dict.fromkeys(self.counters, Kind.NUMBER)

    @cached_property
    def fast_types(self) -> dict[str, pa.DataType]:
        """Arrow type of every column that is read, by name."""
        return {name: FAST_TYPES[kind] for name, kind in self.kinds.items()}


class HeaderError(TilewatchError):
    """A header that does not belong to the layout; the message names the column."""


def match_header(line: bytes, layout: Layout) -> Header:
    """Match one header line by name, whatever the order of its columns and whichever separator it has.

    A column that pandas adds for its index is left out. Raises HeaderError where a required column is missing
    or a known one stands twice.
    """
    errors = []
    for separator in SEPARATORS:
        if separator != SEPARATORS[0] and separator.encode() not in line:
            continue
        try:
            return _matched(line, layout, separator)
        except HeaderError as error:
            errors.append(error)
    raise errors[0]


def is_header(line: bytes, layout: Layout) -> bool:
    """Whether a line inside a file is another header: an export that was appended to the first."""
    try:
        match_header(line, layout)
    except HeaderError:
        return False
    return True


def _matched(line: bytes, layout: Layout, separator: str) -> Header:
    names = _unique(_cells(line, separator))
    known = {_normal(text): f for f in layout.fields for text in f.headers}
    fields = {name: known[_normal(name)] for name in names if _normal(name) in known}
    columns = [f.column for f in fields.values()]
    if twice := sorted({column for column in columns if columns.count(column) > 1}):
        raise HeaderError(f"more than one column for {', '.join(twice)}")
    if missing := [f.headers[0] for f in layout.fields if f.required and f.column not in columns]:
        raise HeaderError(f"no column {', '.join(missing)}{_hint(line)}")
    rest = tuple(name for name in names if name not in fields)
    index = tuple(name for name in rest if _PANDAS_INDEX.fullmatch(name))
    named = tuple(name for name in rest if not name.startswith("unnamed ") and name not in index)
    chosen = named if layout.counters is True else tuple(n for n in named if n in (layout.counters or ()))
    ignored = (*index, *(name for name in named if name not in chosen))
    return Header(tuple(names), fields, chosen, ignored, separator, layout.aside)


def _cells(line: bytes, separator: str) -> Sequence[str]:
    try:
        text = line.decode("utf-8").removeprefix(BYTE_ORDER_MARK).strip("\r\n")
        return [cell.strip() for cell in next(csv.reader([text], delimiter=separator, strict=True), [])]
    except (UnicodeDecodeError, csv.Error) as error:
        raise HeaderError(f"header cannot be read: {error}") from error


def _unique(cells: Sequence[str]) -> list[str]:
    """Names without blanks and repeats: ``unnamed 3`` after a trailing comma, ``x (2)`` for a second x."""
    names: list[str] = []
    for index, cell in enumerate(cells):
        name = cell or f"unnamed {index}"
        while name in names:
            name = f"{name} (2)"
        names.append(name)
    return names


def _normal(name: str) -> str:
    return re.sub(r"[\s_]+", " ", name.removesuffix(" (2)")).strip().lower()


def _hint(line: bytes) -> str:
    if line.startswith(b"version https://git-lfs"):
        return ": the file is a Git LFS pointer, not the data"
    return ""
