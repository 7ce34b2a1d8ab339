"""Cell text to typed columns, vectorised: times to exact int64 nanoseconds, and which cells do not fit."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.read.tabular.layout import NULL_TOKENS, Kind

BoolArray = npt.NDArray[np.bool_]

_PATTERNS = {
    Kind.INTEGER: r"^(-?[0-9]{1,18}|-?[0-9]{1,15}\.0*)$",
    Kind.NUMBER: r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$",
    Kind.TIMESTAMP: r"^-?([0-9]{1,15}|[1-8][0-9]{15})(\.[0-9]*)?([eE]-[0-9]{1,2})?$",
    Kind.DURATION: r"^-?([0-9]{1,15}|[1-8][0-9]{15})(\.[0-9]*)?([eE]-[0-9]{1,2})?$",
}
_PARTS = r"^(?P<sign>-?)(?P<whole>[0-9]+)\.?(?P<fraction>[0-9]*)$"


def ns_from_decimals(column: pa.Array) -> pa.Array | None:
    """Nanoseconds of a decimal128 column in µs, read from its unscaled integers: no float, no division by
    hand.

    Scale 3 is nanoseconds already; scale 6 is rounded half away from zero. None where a value exceeds int64
    or would silently become 0.
    """
    words = np.frombuffer(column.buffers()[1], dtype=np.int64).reshape(-1, 2)
    words = words[column.offset : column.offset + len(column)]
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    low = np.where(valid, words[:, 0], 0)
    if bool(np.any(valid & (words[:, 1] != low >> 63))):
        return None
    if column.type.scale > 3:
        step = 10 ** (column.type.scale - 3)
        rounded = np.sign(low) * ((np.abs(low) + step // 2) // step)
        if np.count_nonzero(rounded) != np.count_nonzero(low):
            return None
        low = rounded
    return pa.array(low, type=pa.int64(), mask=~valid if column.null_count else None)


def typed(text: pa.Array, kind: Kind) -> tuple[pa.Array, BoolArray]:
    """Values of string cells and a mask of those that are neither a value of ``kind`` nor "no value".

    Blanks around a cell are ignored. A cell that does not fit is null in the values. A time in positive
    scientific notation does not fit: its last digits are lost.
    """
    text = pc.utf8_trim_whitespace(text)
    missing = pc.fill_null(pc.is_in(text, value_set=pa.array(NULL_TOKENS)), True)
    text = pc.if_else(missing, pa.scalar(None, pa.string()), text)
    if kind is Kind.TEXT:
        return text.dictionary_encode(), np.zeros(len(text), dtype=np.bool_)
    fits = pc.match_substring_regex(text, _PATTERNS[kind])
    bad = pc.fill_null(pc.invert(fits), False)
    text = pc.if_else(bad, pa.scalar(None, pa.string()), text)
    if kind is Kind.INTEGER:
        # A column of integers with blanks is one of floats to a data frame: 37371.0 is an integer.
        values = pc.replace_substring_regex(text, r"\.0*$", "").cast(pa.int64())
    elif kind is Kind.NUMBER:
        values = pc.replace_substring_regex(text, r"^\+", "").cast(pa.float64())
    else:
        values = _ns_from_text(text)
    return values, bad.to_numpy(zero_copy_only=False)


def _ns_from_text(text: pa.Array) -> pa.Array:
    plain = pc.extract_regex(text, _PARTS)
    fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(pc.struct_field(plain, [2]), 4, "0"), 0, 4)
    tenths = fraction.cast(pa.int64())
    whole = pc.struct_field(plain, [1]).cast(pa.int64())
    magnitude = pc.add(pc.multiply(whole, 1000), pc.divide(pc.add(tenths, 5), 10))
    negative = pc.equal(pc.struct_field(plain, [0]), "-")
    values = pc.if_else(negative, pc.negate(magnitude), magnitude)
    small = pc.fill_null(pc.match_substring(text, "e", ignore_case=True), False)
    if not pc.any(small).as_py():
        return values
    scaled = [None if item is None else ns_from_microseconds(item) for item in text.filter(small).to_pylist()]
    return pc.replace_with_mask(values, small, pa.array(scaled, type=pa.int64()))


def ns_from_microseconds(text: str) -> int:
    """Nanoseconds of one decimal text in µs, exact, half away from zero. Raises decimal.InvalidOperation."""
    return int((Decimal(text) * 1000).to_integral_value(rounding=ROUND_HALF_UP))
