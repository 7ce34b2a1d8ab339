"""Find the sequence of kernels that a program repeats: the steps of a profile that marks none.

Decode steps replayed from a graph have no step id. What they have is a kernel that occurs once a step, such
as the embedding's gather or the last matmul, and the same kernels between one occurrence and the next. Every
kernel group is tried as such a marker; the longest repeated segment that covers most of the profile is the
step, since a layer also repeats but leaves out what stands before the first and behind the last one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]

_SEED = 15
_BASE = 0x9E3779B97F4A7C15  # odd, so it has an inverse modulo 2 ** 64


@dataclass(frozen=True)
class RepetitionLimits:
    """When a repeated segment is believed to be the program's step."""

    least_share: float = 0.5
    """Share of the rows that identical segments must cover; the rest is told as odd or outside."""
    preferred_times: int = 3
    """Repetitions from which on a segment is preferred over a longer one, which then is several steps."""
    least_times: int = 2
    """A segment seen once repeats nothing."""
    least_rows: int = 2
    """A single kernel launched again and again is a loop over one operator, which calls describe better."""


@dataclass(frozen=True)
class Repetition:
    """``places`` are the indices where segments begin, the last of them one behind the last segment's end.

    ``same`` says of every segment whether it is the repeated sequence; ``length`` is its number of rows.
    """

    places: Integers
    same: npt.NDArray[np.bool_]
    length: int
    marker: int


def find_repetition(
    ops: Codes, groups: Integers, gaps: Integers, limits: RepetitionLimits | None = None
) -> Repetition | None:
    """The repetition of a sequence of kernels, or None.

    ``ops`` are operator codes, by which segments are alike; ``groups`` are finer codes (with shapes), by
    which a marker is known; ``gaps`` is the idle time before each row, which settles where a step begins: of
    all markers of the same segment, the one behind the longest median gap. All of one length, in time order.
    """
    limits = limits or RepetitionLimits()
    sums, inverse = _prefix(ops)
    found: list[tuple[Integers, Repetition]] = []
    for code, places in _occurrences(groups, len(ops) // 2):
        segment = (sums[places[1:]] - sums[places[:-1]]) * inverse[places[:-1]]
        kinds, counts = np.unique(segment, return_counts=True)
        same = segment == kinds[counts.argmax()]
        length = int(np.diff(places)[same][0])
        believed = counts.max() >= limits.least_times and length >= limits.least_rows
        if believed and counts.max() * length >= limits.least_share * len(ops):
            found.append((places, Repetition(*_with_tail(places, same, length, ops), length, int(code))))
    if not found:
        return None
    many = [one for one in found if one[1].same.sum() >= limits.preferred_times] or found
    longest = max(one.length for _, one in many)
    tied = [(places, one) for places, one in many if one.length == longest]
    return max(tied, key=lambda pair: (float(np.median(gaps[pair[0][1:]])), -int(pair[0][0])))[1]


def _prefix(ops: Codes) -> tuple[Codes, Codes]:
    """Prefix sums of a polynomial hash modulo 2 ** 64, and the factor that moves a segment to place 0."""
    kinds, index = np.unique(ops, return_inverse=True)
    values = np.random.default_rng(_SEED).integers(1, 1 << 63, len(kinds), dtype=np.uint64)[index]
    powers = np.full(len(ops) + 1, _BASE, dtype=np.uint64)
    powers[0] = 1
    inverses = np.full(len(ops) + 1, pow(_BASE, -1, 1 << 64), dtype=np.uint64)
    inverses[0] = 1
    powers, inverses = np.cumprod(powers), np.cumprod(inverses)
    sums = np.zeros(len(ops) + 1, dtype=np.uint64)
    np.cumsum(values * powers[:-1], out=sums[1:])
    return sums, inverses


def _occurrences(groups: Integers, most: int) -> list[tuple[int, Integers]]:
    """Every code that occurs at least twice and at most ``most`` times, with its places in order."""
    order = np.argsort(groups, kind="stable")
    codes, first, counts = np.unique(groups[order], return_index=True, return_counts=True)
    wanted = np.flatnonzero((counts >= 2) & (counts <= most))
    return [(int(codes[i]), order[first[i] : first[i] + counts[i]].astype(np.int64)) for i in wanted]


def _with_tail(
    places: Integers, same: npt.NDArray[np.bool_], length: int, ops: Codes
) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Segments with the one behind the last marker, where the profile holds it whole."""
    begin = int(places[-1])
    model = int(places[:-1][same][0])
    whole = np.array_equal(ops[begin : begin + length], ops[model : model + length])
    if begin + length <= len(ops) and whole:
        return np.append(places, begin + length), np.append(same, True)
    return places, same
