"""The 2201 block search: how much of K a tile keeps in L1 and L0, and the buffers that leaves.

Restates the predecessor of the closed matmul tiling library (cann-ops, cache tiling).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewatch.tasks.predict.arithmetic.divisors import largest_divisor
from tilewatch.tasks.predict.arithmetic.integers import (
    BoolArray,
    IntArray,
    align_down,
    align_up,
    ceil_div,
    where,
)
from tilewatch.tasks.predict.quant_matmul.dav_2201.problem import FULL_A, FULL_B, NONE, Problem, Result, Tile

Test = Callable[[IntArray], BoolArray]
L0_HALF_BYTES = 32768
L0_BYTES = 65536
FRACTAL_BYTES = 512
LONG_BURST = 512


def result(at: Problem, tile: Tile) -> Result:
    """The tile with its K depths, in fractals, and parts re-derived from whole blocks a core."""
    a_k, b_k = l1_depth(at, tile)
    m_l0, n_l0 = ceil_div(tile.m, 16), ceil_div(tile.n, 16)
    k_a, k_b = ceil_div(a_k, 32), ceil_div(b_k, 32)
    m_parts = parts_of_blocks(at.m_fractals, tile.m_parts, m_l0)
    n_parts = parts_of_blocks(at.n_fractals, tile.n_parts, n_l0)
    buffers = _buffers(at, (m_l0, n_l0), (k_a, k_b), (m_parts, n_parts))
    return Result(m_parts, n_parts, m_l0, n_l0, l0_depth(tile, a_k, b_k), k_a, k_b, *buffers)


def parts_of_blocks(fractals: IntArray, parts: IntArray, block: IntArray) -> IntArray:
    """Parts of one side once every core takes whole blocks."""
    blocks = ceil_div(ceil_div(fractals, parts), block)
    return ceil_div(fractals, np.minimum(blocks * block, fractals))


def l1_depth(at: Problem, tile: Tile) -> tuple[IntArray, IntArray]:
    """K elements of A and of B in L1."""
    a, b = tile.k, tile.k
    several = ceil_div(at.k, tile.k) > 1
    streamed = several & (tile.load == NONE)
    if streamed.any():
        new_a, new_b = _streamed(at, tile)
        a, b = where(streamed, new_a, a), where(streamed, new_b, b)
    full_a, full_b = several & (tile.load == FULL_A), several & (tile.load == FULL_B)
    beside_a = _longest_burst(at, tile.other_k, tile.m, tile.n) if at.transpose_b else tile.other_k
    beside_b = tile.other_k if at.transpose_a else _longest_burst(at, tile.other_k, tile.n, tile.m)
    a = where(full_a, at.kp, where(full_b, beside_b, a))
    b = where(full_b, at.kp, where(full_a, beside_a, b))
    return a, b


def _streamed(at: Problem, tile: Tile) -> tuple[IntArray, IntArray]:
    """Neither side held: short slices on the side read by columns, long bursts on the side read by rows."""
    kp, m, n, l1 = at.kp, tile.m, tile.n, at.l1_bytes
    short = _first(
        align_up(ceil_div(L0_BYTES, np.maximum(m, n)), 32), tile.k, lambda depth: tile.k % depth == 0, tile.k
    )
    long = _first(short, tile.k, lambda depth: depth % LONG_BURST == 0, tile.k)
    a = short if at.transpose_a else long
    b = long if at.transpose_b else short
    odd = kp % 256 != 0
    expand_a = np.full(len(at), not at.transpose_a) & (at.transpose_b | odd)
    expand_b = np.full(len(at), at.transpose_b) & ((not at.transpose_a) | odd)
    shared = align_down(np.minimum(kp, l1 // (2 * (m + n))), long)
    both = expand_a & expand_b & (shared > 0)
    a, b = where(both, shared, a), where(both, shared, b)
    grown_a, fitted_b = _expand(at, m, n, a, b)
    grown_b, fitted_a = _expand(at, n, m, b, a)
    only_b = expand_b & ~expand_a
    return (
        where(expand_a, grown_a, where(only_b, fitted_a, a)),
        where(expand_a, fitted_b, where(only_b, grown_b, b)),
    )


def _expand(
    at: Problem, side: IntArray, other: IntArray, depth: IntArray, other_depth: IntArray
) -> tuple[IntArray, IntArray]:
    """Grow one side's depth into the free L1, then fit the other side's to it."""
    room = np.minimum(at.kp, (at.l1_bytes - 2 * other_depth * other) // (2 * side))
    grows = room >= depth
    grown = where(grows, align_down(room, depth), depth)
    left = (at.l1_bytes - 2 * grown * side) // (2 * other * 32)
    fitted = 32 * largest_divisor(grown // 32, np.minimum(at.k_fractals, left))
    return grown, where(grows, fitted, other_depth)


def _longest_burst(at: Problem, depth: IntArray, held: IntArray, streamed: IntArray) -> IntArray:
    """First depth from ``depth`` that divides K in whole 512-byte bursts and fits beside the held side."""
    room = np.minimum(at.kp, (at.l1_bytes - at.kp * held) // (2 * streamed))
    found = _first(depth, room, lambda tried: (at.kp % tried == 0) & (tried % LONG_BURST == 0), depth)
    return where(at.kp % LONG_BURST == 0, found, depth)


def _first(start: IntArray, last: IntArray, holds: Test, otherwise: IntArray) -> IntArray:
    """First of start, start + 32, … ≤ last for which ``holds``; ``otherwise`` where there is none."""
    found = np.array(np.broadcast_to(otherwise, start.shape))
    open_ = start <= last
    tried = start
    while open_.any():
        hit = open_ & holds(tried)
        found = where(hit, tried, found)
        open_ = open_ & ~hit & (tried + 32 <= last)
        tried = tried + 32
    return found


def l0_depth(tile: Tile, a_k: IntArray, b_k: IntArray) -> IntArray:
    """K fractals in L0: all that L1 has if it fits half of L0, else its largest divisor that does."""
    most = np.minimum(L0_HALF_BYTES // tile.m, L0_HALF_BYTES // tile.n)
    held = ceil_div(np.minimum(a_k, b_k), 32)
    fitting = where(most // 32 >= 1, largest_divisor(held, most // 32), ceil_div(most, 32))
    return where(most >= np.minimum(a_k, b_k), held, fitting)


def _buffers(
    at: Problem,
    block: tuple[IntArray, IntArray],
    depth: tuple[IntArray, IntArray],
    parts: tuple[IntArray, IntArray],
) -> tuple[IntArray, IntArray, IntArray]:
    """Double buffers of L0C, A and B: single where a side is held whole, else as L1 allows."""
    size_a, size_b = FRACTAL_BYTES * block[0] * depth[0], FRACTAL_BYTES * block[1] * depth[1]
    full_a = held_whole(at.m_fractals, parts[0], block[0]) & (depth[0] >= at.k_fractals)
    full_b = held_whole(at.n_fractals, parts[1], block[1]) & (depth[1] >= at.k_fractals)
    l1 = at.l1_bytes
    both = 2 * size_a + 2 * size_b <= l1
    only_a = ~both & (2 * size_a + size_b <= l1)
    only_b = ~both & ~only_a & (size_a + 2 * size_b <= l1)
    neither = ~full_a & ~full_b
    double_a = (full_b & ~full_a & (size_b + 2 * size_a <= l1)) | (neither & (both | only_a))
    double_b = (full_a & ~full_b & (size_a + 2 * size_b <= l1)) | (neither & (both | only_b))
    l0c = where(2 * block[0] * block[1] <= 128, 2, 1)
    return l0c, where(double_a, 2, 1), where(double_b, 2, 1)


def held_whole(fractals: IntArray, parts: IntArray, block: IntArray) -> BoolArray:
    """Whether a core's part of one side is a single block."""
    single: BoolArray = ceil_div(ceil_div(fractals, parts), block) == 1
    return single
