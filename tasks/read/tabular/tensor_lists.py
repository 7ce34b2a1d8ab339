"""Shape, dtype and format cells: every distinct text parsed once, then spread over the rows.

A cell lists tensors between ``;`` and dimensions between ``,``, sometimes in quotes. A scalar or a missing
optional input is an empty list; a cell without a value is null.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_DIM = r" *(?:-?[0-9]{1,18})? *"
SHAPE_FORM = rf'"?{_DIM}(?:[,;]{_DIM})*"?'
WORDS_FORM = r'"?[A-Za-z0-9_;,. :()/-]*"?'

SHAPES = pa.list_(pa.list_(pa.int64()))
WORDS = pa.list_(pa.string())


@dataclass(frozen=True)
class Shapes:
    """Shapes of every row and the last dimension of its first tensor, -1 where there is none."""

    values: pa.Array
    last_dim: npt.NDArray[np.int64]


def shapes(cells: pa.DictionaryArray) -> Shapes:
    """Shape cells as ``list<list<int64>>``."""
    parsed = [_shape(text) for text in cells.dictionary.to_pylist()]
    last = np.array([shape[0][-1] if shape and shape[0] else -1 for shape in parsed] + [-1], dtype=np.int64)
    index = cells.indices.fill_null(len(parsed)).to_numpy(zero_copy_only=False)
    return Shapes(pa.array(parsed, type=SHAPES).take(cells.indices), last[index])


def words(cells: pa.DictionaryArray) -> pa.Array:
    """Dtype or format cells as ``list<string>``; the prefixes ``DT_`` and ``FORMAT_``, which only some files
    write, are left out."""
    parsed = [_words(text) for text in cells.dictionary.to_pylist()]
    return pa.array(parsed, type=WORDS).take(cells.indices)


@lru_cache(maxsize=4096)
def _shape(text: str) -> list[list[int]]:
    tensors = text.strip().strip('"').split(";")
    return [[int(dim) for dim in tensor.split(",") if dim.strip()] for tensor in tensors]


@lru_cache(maxsize=4096)
def _words(text: str) -> list[str]:
    tensors = text.strip().strip('"').split(";")
    return [word.strip().removeprefix("DT_").removeprefix("FORMAT_") for word in tensors]
