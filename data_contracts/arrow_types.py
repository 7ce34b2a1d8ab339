"""The ``physicalType`` words of the contracts, read as Arrow types."""

from __future__ import annotations

import re

import pyarrow as pa

_SCALARS: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
}


def parse(text: str) -> pa.DataType:
    """Arrow type of a word such as ``int64``, ``list<list<int64>>`` or ``map<string, double>``.

    Raises ValueError naming the word that is not known.
    """
    word = text.strip()
    if word in _SCALARS:
        return _SCALARS[word]
    if nested := re.fullmatch(r"list<(.+)>", word):
        return pa.list_(parse(nested[1]))
    if nested := re.fullmatch(r"map<([^,<>]+),(.+)>", word):
        return pa.map_(parse(nested[1]), parse(nested[2]))
    raise ValueError(f"unknown physicalType {word!r}; known: {', '.join(_SCALARS)}, list<…>, map<…, …>")
