"""Python values → Arrow arrays by their buffers.

``pyarrow.array`` imports pandas at its first use, which alone takes half of the memory a streaming reader may
have; these columns do without.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa


def arrow_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of ``kind``: int64, bool, string, a list of these, or a map of strings given as pairs.

    None is null. Raises TypeError for another type, OverflowError for an integer beyond int64.
    """
    if pa.types.is_map(kind):
        return _map(values, kind)
    nulls = values.count(None)
    if nulls == len(values):
        return pa.nulls(nulls, kind)
    validity = None
    if nulls:
        validity = _bits(np.fromiter((value is not None for value in values), bool, len(values)))
    if pa.types.is_int64(kind):
        numbers = np.array([value or 0 for value in values] if nulls else values, np.int64)
        return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(numbers)])
    if pa.types.is_boolean(kind):
        true = np.fromiter((value is True for value in values), bool, len(values))
        return pa.Array.from_buffers(kind, len(values), [validity, _bits(true)])
    if pa.types.is_string(kind):
        text = [value or "" for value in values] if nulls else values
        return pa.Array.from_buffers(kind, len(values), [validity, *_text_buffers(text)])
    if pa.types.is_list(kind):
        items = arrow_column([item for value in values for item in value or ()], kind.value_type)
        offsets = _offsets([value or () for value in values])
        return pa.Array.from_buffers(kind, len(values), [validity, offsets], children=[items])
    raise TypeError(f"no buffers for {kind}")


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column as one array, without a copy where they are one already."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _map(pairs: Sequence[tuple[Sequence[str], Sequence[str]]], kind: pa.MapType) -> pa.Array:
    """A map of strings; every value is (names, values) of equal length."""
    offsets = pa.Array.from_buffers(pa.int32(), len(pairs) + 1, [None, _offsets([n for n, _ in pairs])])
    keys = arrow_column([name for names, _ in pairs for name in names], kind.key_type)
    items = arrow_column([value for _, values in pairs for value in values], kind.item_type)
    return pa.MapArray.from_arrays(offsets, keys, items).cast(kind)


def _text_buffers(values: Sequence[str]) -> list[pa.Buffer]:
    joined = "".join(values)
    data = joined.encode("utf-8", "replace")
    if len(data) != len(joined):
        encoded = [value.encode("utf-8", "replace") for value in values]
        return [_offsets(encoded), pa.py_buffer(b"".join(encoded))]
    return [_offsets(values), pa.py_buffer(data)]


def _offsets(parts: Sequence[Sequence[Any]]) -> pa.Buffer:
    ends = np.fromiter(accumulate(map(len, parts), initial=0), np.int32, len(parts) + 1)
    return pa.py_buffer(ends)


def _bits(flags: np.ndarray[Any, np.dtype[np.bool_]]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
