"""Base block of QuantBatchMatmulV3 on NpuArch 3510 (950): from the shape, then towards using every core.

Restates ops-nn's arch35 adaptive sliding window tiling: the first cut, the core-utilisation step both
templates take, and the scored search the Tensor-API template adds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import (
    BoolArray,
    IntArray,
    align_down,
    align_up,
    ceil_div,
    ints,
    where,
)
from tilewatch.tasks.predict.calls import Points, QuantMatmulCall

LARGEST_SIDE = 256
FIRST_BASE_K = 128
CUBE_SIDE = 16
INT8_INNER = 32
LARGEST_BASE_K = 4095


@dataclass(frozen=True)
class Base:
    """Base block over the points; ``tail_split``: the last round may still be split over idle cores."""

    m: IntArray
    n: IntArray
    k: IntArray
    tail_split: BoolArray


def base_block(call: QuantMatmulCall, at: Points, cores: int, l0_bytes: int) -> Base:
    """Base block both templates start from; ``l0_bytes`` is the smaller of L0A and L0B."""
    inner_n = CUBE_SIDE if call.transpose_w else INT8_INNER
    first = Base(
        align_up(np.minimum(at.m, LARGEST_SIDE), CUBE_SIDE),
        align_up(np.minimum(at.n, LARGEST_SIDE), inner_n),
        align_up(np.minimum(at.k, FIRST_BASE_K), INT8_INNER),
        np.ones(len(at), dtype=np.bool_),
    )
    return _use_more_cores(call, at, first, cores, l0_bytes)


def units(call: QuantMatmulCall) -> tuple[int, int, int]:
    """Granules of base m, n and k once blocks are shrunk to use more cores."""
    m = 128 if call.transpose_x else CUBE_SIDE
    n = CUBE_SIDE if call.transpose_w else 128
    k = INT8_INNER if call.transpose_x and not call.transpose_w else 128
    return m, n, k


def _use_more_cores(call: QuantMatmulCall, at: Points, base: Base, cores: int, l0_bytes: int) -> Base:
    unit_m, unit_n, unit_k = units(call)
    rows, columns = ceil_div(at.m, base.m), ceil_div(at.n, base.n)
    most_m, most_n = ceil_div(at.m, unit_m), ceil_div(at.n, unit_n)
    idle = rows * columns < cores
    # Where even the smallest blocks leave cores idle, a layout that reads B by columns is left alone.
    if call.transpose_x or not call.transpose_w:
        idle &= most_m * most_n >= cores
    rows, columns = where(idle, rows, 1), where(idle, columns, 1)
    by_rows = (most_m < most_n) | ((most_m == most_n) & (unit_n == CUBE_SIDE))
    tall_m = align_up(ceil_div(at.m, rows), unit_m)
    wide_n = align_up(ceil_div(at.n, cores // np.minimum(ceil_div(at.m, tall_m), cores)), unit_n)
    fixed_n = align_up(ceil_div(at.n, columns), unit_n)
    short_m = align_up(ceil_div(at.m, cores // np.minimum(ceil_div(at.n, fixed_n), cores)), unit_m)
    side_m, side_n = where(by_rows, tall_m, short_m), where(by_rows, wide_n, fixed_n)
    counts = (
        where(by_rows, ceil_div(at.m, tall_m), cores // np.minimum(ceil_div(at.n, fixed_n), cores)),
        where(by_rows, cores // np.minimum(ceil_div(at.m, tall_m), cores), ceil_div(at.n, fixed_n)),
    )
    side_n, side_m, counts = _even_out(
        at.n, at.m, side_n, side_m, (counts[1], counts[0]), (unit_n, unit_m), cores
    )
    side_m, side_n, _ = _even_out(at.m, at.n, side_m, side_n, (counts[1], counts[0]), (unit_m, unit_n), cores)
    deepest = l0_bytes // 2 // np.maximum(side_m, side_n)
    accepted = idle & (deepest >= unit_k)
    depth = np.minimum(align_up(at.k, unit_k), align_down(deepest, unit_k))
    depth = where(depth > LARGEST_BASE_K, align_up(depth // 2, unit_k), depth)
    return Base(
        where(accepted, side_m, base.m),
        where(accepted, side_n, base.n),
        where(accepted, depth, base.k),
        ~accepted,
    )


def _even_out(
    long_size: IntArray,
    short_size: IntArray,
    long_side: IntArray,
    short_side: IntArray,
    counts: tuple[IntArray, IntArray],
    unit: tuple[int, int],
    cores: int,
) -> tuple[IntArray, IntArray, tuple[IntArray, IntArray]]:
    """Halve the long side of a block while it is at least twice the short one and cores allow it."""
    long_count, short_count = counts
    while True:
        again = (long_side >= 2 * short_side) & (long_count < cores // 2) & (long_side != unit[0])
        if not again.any():
            return long_side, short_side, (long_count, short_count)
        doubled = where(again, long_count * 2, 1)
        other = cores // doubled
        new_short = align_up(ceil_div(short_size, other), unit[1])
        new_long = align_up(ceil_div(long_size, doubled), unit[0])
        short_side, long_side = where(again, new_short, short_side), where(again, new_long, long_side)
        long_count = where(again, ceil_div(long_size, new_long), long_count)
        short_count = where(again, ceil_div(short_size, new_short), short_count)


def scored_block(
    call: QuantMatmulCall, at: Points, base: Base, cores: int, l0_bytes: int, l0c_bytes: int
) -> Base:
    """The Tensor-API template's search: least wasted area plus idle cores plus lopsidedness, first best wins.

    A candidate taller than the *unrounded* M is refused, so below 16 rows nothing is ever accepted.
    """
    unit_n = CUBE_SIDE if call.transpose_w else 128
    blocks = ceil_div(at.m, base.m) * ceil_div(at.n, base.n)
    target = np.maximum(blocks, cores)
    open_ = _small_tail(at.m, base.m) | _small_tail(at.n, base.n) | (blocks < cores)
    best_m, best_n, best_k = base.m, base.n, base.k
    best = _score(at, base.m, base.n, target)
    candidates = [(ceil_div(at.m, base.m), ceil_div(at.n, base.n), open_)]
    most_rows, most_columns = ceil_div(at.m, CUBE_SIDE), ceil_div(at.n, unit_n)
    for rows in range(1, min(int(most_rows.max()), cores) + 1):
        columns = np.minimum(most_columns, max(1, cores // rows))
        candidates.append((np.full_like(at.m, rows), columns, open_ & (blocks < cores) & (rows <= most_rows)))
    for rows_, columns, offered in candidates:
        m = align_up(ceil_div(at.m, rows_), CUBE_SIDE)
        n = align_up(ceil_div(at.n, columns), unit_n)
        deepest = l0_bytes // 2 // np.maximum(m, n)
        legal = offered & (m <= at.m) & (n <= at.n) & (4 * m * n <= l0c_bytes) & (deepest >= 128)
        score = _score(at, m, n, target)
        better = legal & (score < best)
        best = where(better, score, best)
        best_m, best_n = where(better, m, best_m), where(better, n, best_n)
        best_k = where(better, _depth(at, base.k, align_down(deepest, 128)), best_k)
    return Base(best_m, best_n, best_k, base.tail_split)


def _small_tail(size: IntArray, side: IntArray) -> BoolArray:
    tail = size % side
    return (size > side) & (tail > 0) & (2 * tail < side)


def _score(at: Points, m: IntArray, n: IntArray, target: IntArray) -> IntArray:
    blocks = ceil_div(at.m, m) * ceil_div(at.n, n)
    wasted = np.maximum(0, blocks * m * n - at.m * at.n)
    idle = np.maximum(0, target - blocks) * m * n
    return ints(wasted + idle) + where((n >= 2 * m) | (m >= 2 * n), m * n, 0)


def _depth(at: Points, current: IntArray, deepest: IntArray) -> IntArray:
    longest = np.minimum(align_up(at.k, 128), deepest)
    longest = where(longest > LARGEST_BASE_K, align_up(longest // 2, 128), longest)
    return where((current <= deepest) & (current % 128 == 0), current, longest)
