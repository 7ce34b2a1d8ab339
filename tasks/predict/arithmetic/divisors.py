"""Divisor questions the block search asks, answered for arrays by looking at each distinct number once."""

from __future__ import annotations

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import IntArray, ints


def divisors(number: int) -> IntArray:
    """Divisors of ``number`` ≥ 1, ascending."""
    candidates: IntArray = np.arange(1, number + 1, dtype=np.int64)
    return ints(candidates[number % candidates == 0])


def largest_divisor(number: IntArray, limit: IntArray) -> IntArray:
    """Largest divisor of ``number`` that is at most ``limit``; 1 where the limit is below 1."""
    number, limit = np.broadcast_arrays(ints(number), ints(limit))
    found = np.ones(number.shape, dtype=np.int64)
    for value in np.unique(number):
        at = number == value
        known = divisors(int(value))
        found[at] = known[np.maximum(np.searchsorted(known, limit[at], side="right") - 1, 0)]
    return found


def smallest_divisor(number: IntArray, at_least: IntArray) -> IntArray:
    """Smallest divisor of ``number`` that is at least ``at_least``; ``number`` where that is larger."""
    number, at_least = np.broadcast_arrays(ints(number), ints(at_least))
    found = np.ones(number.shape, dtype=np.int64)
    for value in np.unique(number):
        at = number == value
        known = divisors(int(value))
        found[at] = known[np.minimum(np.searchsorted(known, at_least[at]), len(known) - 1)]
    return found
