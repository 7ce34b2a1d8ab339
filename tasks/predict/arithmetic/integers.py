"""The integer arithmetic host tiling is made of, on arrays of points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

UNSET = int(np.iinfo(np.int64).min)
"""Marks a field the host code leaves unwritten: it may hold the value of an earlier call."""


def ints(value: int | Sequence[int] | IntArray | BoolArray) -> IntArray:
    """``value`` as an int64 array of any shape."""
    return np.asarray(value, dtype=np.int64)


def ceil_div(value: int | IntArray, divisor: int | IntArray) -> IntArray:
    """⌈value / divisor⌉ for positive divisors."""
    return -(-ints(value) // ints(divisor))


def align_up(value: int | IntArray, unit: int | IntArray) -> IntArray:
    """Smallest multiple of ``unit`` that is at least ``value``."""
    return ceil_div(value, unit) * ints(unit)


def align_down(value: int | IntArray, unit: int | IntArray) -> IntArray:
    """Largest multiple of ``unit`` that is at most ``value``."""
    return ints(value) // ints(unit) * ints(unit)


def where(condition: BoolArray, yes: int | IntArray, no: int | IntArray) -> IntArray:
    """``numpy.where`` that stays int64."""
    return np.where(condition, ints(yes), ints(no)).astype(np.int64, copy=False)


def mask(value: bool | np.bool_ | BoolArray, count: int) -> BoolArray:
    """``value`` as a bool array of ``count`` points."""
    return np.broadcast_to(np.asarray(value, dtype=np.bool_), (count,))
