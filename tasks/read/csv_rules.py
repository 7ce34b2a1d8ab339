"""Which parsed rows are good: every cell of its kind, every rule of the layout kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.read import cells
from tasks.read.arrow_columns import one_array
from tasks.read.csv_parse import parse
from tasks.read.layout import FAST_TYPES, Header, Kind
from tasks.read.lines import Block, IntArray

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Wrong:
    """What is wrong with one row: the rule it breaks, the field and its text, and a sentence."""

    rule: str
    reason: str
    field: str | None = None
    value: str | None = None


def fast_rows(header: Header, block: Block) -> pa.Table | None:
    """Typed rows of a block in which every line is a good row, else None.

    What may be a time that lost digits to scientific notation is left to the careful way, which sees the
    text: a positive exponent anywhere, or a time stamp of whole seconds.
    """
    if b"+" in block.data and (b"E+" in block.data or b"e+" in block.data):
        return None
    kinds = header.kinds
    try:
        parsed = parse(header, block.data, {name: FAST_TYPES[kind] for name, kind in kinds.items()})
    except pa.ArrowException:
        return None
    if parsed.num_rows != block.line_count:
        return None
    columns: dict[str, pa.Array] = {}
    for name, kind in kinds.items():
        values = one_array(parsed.column(name))
        if kind.is_time:
            values = cells.ns_from_decimals(values)
            if kind is Kind.TIMESTAMP and values is not None and _has_whole_seconds(values):
                return None
        elif kind is Kind.TEXT and not pc.utf8_trim_whitespace(values.dictionary).equals(values.dictionary):
            values = None
        if values is None:
            return None
        columns[name] = values
    if next(_broken_rules(header, columns), None) is not None:
        return None
    return pa.table(columns)


def _has_whole_seconds(times_ns: pa.Array) -> bool:
    seconds = pc.divide(times_ns, _SECOND_NS)
    return bool(pc.any(pc.equal(pc.multiply(seconds, _SECOND_NS), times_ns)).as_py())


def careful_rows(header: Header, text: pa.Table) -> tuple[pa.Table, IntArray, dict[int, Wrong]]:
    """Typed columns of the good rows of ``text``, their row numbers, and what is wrong with the rest."""
    columns: dict[str, pa.Array] = {}
    wrong: dict[int, Wrong] = {}
    for name, kind in header.kinds.items():
        raw = one_array(text.column(name))
        columns[name], bad = cells.typed(raw, kind)
        for row in np.flatnonzero(bad).tolist():
            value = raw[row].as_py()
            reason = f"{name}: expected {kind.value}, found {value!r}"
            wrong.setdefault(row, Wrong("cell_type", reason, name, value))
    for name, rule, expected, mask in _broken_rules(header, columns):
        for row in np.flatnonzero(mask).tolist():
            value = text.column(name)[row].as_py()
            wrong.setdefault(row, Wrong(rule, f"{name}: {expected}, found {value!r}", name, value))
    good = np.setdiff1d(np.arange(text.num_rows), np.fromiter(wrong, np.int64, len(wrong)))
    return pa.table({name: _only(values, good) for name, values in columns.items()}), good, wrong


def _only(values: pa.Array, rows: IntArray) -> pa.Array:
    """Some rows; a dictionary forgets the texts of the others, which later steps could not parse."""
    chosen = values.take(pa.array(rows))
    if pa.types.is_dictionary(chosen.type):
        return chosen.cast(pa.string()).dictionary_encode()
    return chosen


def _broken_rules(
    header: Header, columns: dict[str, pa.Array]
) -> Iterator[tuple[str, str, str, cells.BoolArray]]:
    """Broken rules of the layout as (column, rule, what is expected, mask of the rows that break it)."""
    for name, spec in header.fields.items():
        values = columns[name]
        if spec.required and values.null_count:
            yield name, "required", "a value is required", values.is_null().to_numpy(zero_copy_only=False)
        if spec.minimum is not None and pc.less(pc.min(values), spec.minimum).as_py():
            low = pc.fill_null(pc.less(values, spec.minimum), False)
            yield name, "range", f"at least {spec.minimum} is expected", low.to_numpy(zero_copy_only=False)
        if spec.pattern is not None:
            strange = pc.invert(pc.match_substring_regex(values.dictionary, f"^(?:{spec.pattern})$"))
            if pc.any(strange).as_py():
                mask = pc.fill_null(strange.take(values.indices), False).to_numpy(zero_copy_only=False)
                yield name, "cell_form", "another form of text is expected", mask
