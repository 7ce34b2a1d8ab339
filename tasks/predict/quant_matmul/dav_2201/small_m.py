"""The small-M override of QuantBatchMatmulV3 on NpuArch 2201: wide NZ weights with at most 256 rows.

Restates ops-nn's override of the block search's result. It was read, not replayed: of the golden values only
one unit-test row covers it.
"""

from __future__ import annotations

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
from tilewatch.tasks.predict.calls import NZ, Points, QuantMatmulCall
from tilewatch.tasks.predict.environment import Platform
from tilewatch.tasks.predict.quant_matmul.dav_2201.problem import Result, pick

CORES = (16, 24)
L0_HALF_BYTES = 32768
FEW_ROWS = 96
L1_RESERVE_BYTES = 256


def override(call: QuantMatmulCall, at: Points, platform: Platform, found: Result) -> Result:
    """``found``, or the override's block where it applies and differs."""
    plain = (
        call.weight_format == NZ and not call.transpose_x and not call.transpose_w and call.bias_dtype is None
    )
    applies = (at.k >= 4096) & (at.n >= 7168) & (at.m <= 256)
    if not plain or platform.cube_cores not in CORES or not applies.any():
        return found
    base_m = align_up(np.minimum(at.m, 256), 16)
    few = at.m <= FEW_ROWS
    narrow_n = align_down(np.minimum(L0_HALF_BYTES // base_m, 512), 32)
    applies &= ~few | (at.n <= narrow_n * platform.cube_cores)
    wide_n, wide_used = _widest(at, base_m, platform.cube_cores)
    base_n = where(few, narrow_n, wide_n)
    narrow_k = np.minimum(align_down(np.minimum(L0_HALF_BYTES // base_m, L0_HALF_BYTES // base_n), 64), 128)
    base_k = where(few, narrow_k, 128)
    applies &= (base_m != 16 * found.m_l0) | (base_n != 16 * found.n_l0) | (base_k != 32 * found.k_l0)
    step_a, step_b = _steps(base_m, base_n, base_k, few, platform.l1_bytes - L1_RESERVE_BYTES)
    used = where(few, ceil_div(at.n, base_n), wide_used)
    one, two = np.ones_like(at.m), np.full_like(at.m, 2)
    depths = (base_k // 32, step_a * base_k // 32, step_b * base_k // 32)
    return pick(applies, Result(one, used, base_m // 16, base_n // 16, *depths, one, two, two), found)


def _widest(at: Points, base_m: IntArray, cores: int) -> tuple[IntArray, IntArray]:
    """Base n of 128, 192 or 256 with the best mix of intensity, cores and rounds; the first best wins."""
    best = np.full(len(at), -(1 << 60))
    base_n, used = np.full(len(at), 128), np.ones_like(at.m)
    for width in (128, 192, 256):
        blocks = ceil_div(at.n, width)
        rounds = ceil_div(blocks, cores)
        busy = ceil_div(blocks, rounds)
        score = 7 * (width * base_m // (width + base_m)) + 10 * busy - 100 * rounds
        better = (width * base_m <= L0_HALF_BYTES) & (score > best)
        best, base_n = where(better, score, best), where(better, width, base_n)
        used = where(better, busy, used)
    return base_n, used


def _steps(
    base_m: IntArray, base_n: IntArray, base_k: IntArray, few: BoolArray, room: int
) -> tuple[IntArray, IntArray]:
    """K steps in L1, halved in turn, A first, until two buffers of both sides fit."""
    step_a, step_b = where(few, 8, 4), np.full_like(base_m, 4)
    turn_a = True
    while (over := 2 * base_k * (step_a * base_m + step_b * base_n) > room).any():
        if turn_a:
            step_a = where(over, np.maximum(step_a // 2, 1), step_a)
        else:
            step_b = where(over, np.maximum(step_b // 2, 1), step_b)
        turn_a = not turn_a
    return ints(step_a), ints(step_b)
