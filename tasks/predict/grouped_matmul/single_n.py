"""single_n of GroupedMatmul: how many output columns one block task takes, and what that frees in L1.

The static rule serves few rows an expert; the dynamic rule follows a tuning hint and, where it changes
single_n, tries to hold all of A in L1. No unit test of CANN asserts these values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import BoolArray, IntArray, align_up, ceil_div, ints, where
from tilewatch.tasks.predict.calls import NZ, GroupedMatmulCall, Points

FEW_ROWS = 32
WIDE_N = 2048
LARGEST_SINGLE_N = 1024
FULL_ENOUGH = np.float32(0.95)
BIAS_L1_BYTES = 2048


@dataclass(frozen=True)
class BaseBlock:
    """Base block and L1 steps, each an array over the points."""

    m: IntArray
    n: IntArray
    k: IntArray
    step_a: IntArray
    step_b: IntArray
    depth_a: IntArray
    depth_b: IntArray


def static_single_n(call: GroupedMatmulCall, at: Points, base_n: IntArray, cores: int) -> IntArray:
    """single_n where at most 32 allocated rows an expert meet an NZ weight; 0 elsewhere."""
    applies = (at.m <= FEW_ROWS * call.groups) & (not call.transpose_w or at.n >= WIDE_N)
    applies &= call.weight_format == NZ
    few = ceil_div(at.n, base_n) * call.groups <= cores
    best = np.select(
        [few, at.n >= WIDE_N], [base_n, ints(LARGEST_SINGLE_N)], _best_last_round(call, at, base_n, cores)
    )
    return where(applies, ints(best), 0)


def _best_last_round(call: GroupedMatmulCall, at: Points, base_n: IntArray, cores: int) -> IntArray:
    """Downwards from 1024 in steps of base_n: the first width with the most cores busy in the last round."""
    best, most = base_n.copy(), np.zeros_like(base_n)
    for step in range(int((LARGEST_SINGLE_N // base_n).max()), 0, -1):
        width = step * base_n
        last = call.groups * ceil_div(at.n, width) % cores
        busy = where(last == 0, cores, last)
        better = (width <= LARGEST_SINGLE_N) & (busy > most)
        best, most = where(better, width, best), where(better, busy, most)
    return best


def dynamic_single_n(
    call: GroupedMatmulCall, at: Points, base_m: IntArray, base_n: IntArray, used: IntArray
) -> IntArray:
    """single_n that a tuning hint asks for, base_n where it changes nothing."""
    row_blocks = ceil_div(at.tuning_config, base_m)
    tasks = row_blocks * ceil_div(at.n, base_n) * call.groups
    open_ = (
        (at.tuning_config > 0) & (at.n >= base_n) & (ceil_div(tasks, used) > 1) & (call.weight_format == NZ)
    )
    best = base_n.copy()
    for parts in range(1, int(used.max()) + 1):
        width = ceil_div(at.n, parts)
        tasks = row_blocks * ceil_div(at.n, width) * call.groups
        whole_rounds = np.maximum(align_up(tasks, used), 1)
        filled = tasks.astype(np.float32) / whole_rounds.astype(np.float32) >= FULL_ENOUGH
        accepted = open_ & (parts <= used) & ((width == at.n) | (width % base_n == 0)) & filled
        best = where(accepted, width, best)
        open_ &= ~accepted
    return best


def hold_all_of_a(
    call: GroupedMatmulCall, at: Points, block: BaseBlock, changed: BoolArray, l1_bytes: int
) -> BaseBlock:
    """The block after trying to keep all of A in L1 where single_n changed, with fewer rows if needed."""
    depth = ceil_div(at.k, block.k)
    room = l1_bytes - block.depth_b * block.n * block.k - (BIAS_L1_BYTES if call.bias else 0)
    fits = changed & (depth * block.m * block.k < room)
    smaller = align_up(at.tuning_config, 16) + 16
    fits_smaller = changed & ~fits & (smaller < block.m) & (depth * smaller * block.k < room)
    held = fits | fits_smaller
    return replace(
        block,
        m=where(fits_smaller, smaller, block.m),
        step_a=where(held, depth, block.step_a),
        depth_a=where(held, depth, block.depth_a),
    )
