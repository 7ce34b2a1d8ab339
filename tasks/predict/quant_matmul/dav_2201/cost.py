"""The 2201 block search's cost model: cycles of one candidate from cube work, L1 and L0 moves and bandwidth.

Restates the predecessor of the closed matmul tiling library (cann-ops, cache tiling), with its habit of
counting int8 as 2-byte data in fractals of 16 while K stays in elements.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import (
    BoolArray,
    FloatArray,
    IntArray,
    align_up,
    ceil_div,
    ints,
    where,
)
from tilewatch.tasks.predict.quant_matmul.dav_2201.bursts import Requests, Rows, read, write
from tilewatch.tasks.predict.quant_matmul.dav_2201.depth import held_whole
from tilewatch.tasks.predict.quant_matmul.dav_2201.problem import MIB_192, Problem, Result

LATENCY_L2, LATENCY_DDR, LATENCY_WRITE = 236, 347, 96
OUTSTANDING_READS, OUTSTANDING_WRITES = 64, 48
L2_BYTES_PER_CYCLE = 2550


@dataclass(frozen=True)
class _Core:
    """One core's share at P points, sides as (A, B).

    ``sharing``: cores that read the same part. ``shifted``: cores start at different places along K.
    ``inward``: patches are whole fractals, so blocks are counted as whole tiles.
    """

    patch: tuple[IntArray, IntArray]
    tile: tuple[IntArray, IntArray]
    depth: tuple[IntArray, IntArray]
    l0_depth: IntArray
    l0_repeats: tuple[IntArray, IntArray]
    l1_repeats: tuple[IntArray, IntArray]
    active: IntArray
    sharing: tuple[IntArray, IntArray]
    shifted: BoolArray
    inward: BoolArray


@dataclass(frozen=True)
class _Bandwidth:
    """Bytes a cycle over the points: reading A and B from L2 and from DDR, writing C."""

    l2: tuple[FloatArray, FloatArray]
    ddr: tuple[FloatArray, FloatArray]
    out: FloatArray


def cycles(at: Problem, found: Result, double_l0c: BoolArray) -> FloatArray:
    """Estimated cycles of ``found``; ``double_l0c``: evaluated with two buffers in L0C."""
    core = _core(at, found)
    # A tile larger than what is left gives zero repeats: C++ division by zero, infinity and NaN are kept.
    with np.errstate(divide="ignore", invalid="ignore"):
        speed = _bandwidth(at, core)
        total = _pipeline(at, found, core, speed, double_l0c)
    rounds = ceil_div(found.m_parts * found.n_parts, at.cores)
    cost: FloatArray = total * rounds
    return cost


def _core(at: Problem, found: Result) -> _Core:
    parts_m, parts_n = found.m_parts, found.n_parts
    core_m = _blocks_of(at.m_fractals, parts_m, found.m_l0)
    core_n = _blocks_of(at.n_fractals, parts_n, found.n_l0)
    l0_repeats = (core_n // found.n_l0, core_m // found.m_l0)
    k_a, k_b = found.k_a_l1 >= at.k_fractals, found.k_b_l1 >= at.k_fractals
    full_a = held_whole(at.m_fractals, parts_m, found.m_l0) & k_a
    full_b = held_whole(at.n_fractals, parts_n, found.n_l0) & k_b
    once_a = full_a | (~full_b & k_a)
    once_b = full_b | (full_a & k_b) | (~full_a & ~full_b & ~k_a & k_b)
    l1_repeats = (where(once_a, 1, l0_repeats[0]), where(once_b, 1, l0_repeats[1]))
    patch = (ceil_div(at.m, parts_m), ceil_div(at.n, parts_n))
    active = np.minimum(parts_m * parts_n, at.cores)
    rows = np.minimum(parts_m, active)
    columns = np.minimum(parts_n, active // rows)
    depth = (16 * found.k_a_l1, 16 * found.k_b_l1)
    window = where(parts_m * parts_n > 24, 8, np.maximum(rows, columns))
    shifted = ((patch[0] != 1) | (patch[1] != 1)) & (window > 2) & (ceil_div(at.k, depth[0]) > window // 2)
    inward = (2 * patch[0] % 32 == 0) & (2 * at.k % 32 == 0) & (2 * patch[1] % 32 == 0)
    return _Core(
        patch, (16 * found.m_l0, 16 * found.n_l0), depth, 16 * found.k_l0, l0_repeats, l1_repeats,
        active, (columns, rows), shifted, inward,
    )  # fmt: skip


def _blocks_of(fractals: IntArray, parts: IntArray, block: IntArray) -> IntArray:
    return ints(np.minimum(ceil_div(ceil_div(fractals, parts), block) * block, fractals))


def _bandwidth(at: Problem, core: _Core) -> _Bandwidth:
    def cut(tile: IntArray, patch: IntArray) -> IntArray:
        return where(core.inward, tile, np.minimum(tile, patch))

    m, n = cut(core.tile[0], core.patch[0]), cut(core.tile[1], core.patch[1])
    k_a, k_b = cut(core.depth[0], at.k), cut(core.depth[1], at.k)
    a = Rows(k_a, m, at.m) if at.transpose_a else Rows(m, k_a, at.k)
    b = Rows(n, k_b, at.k) if at.transpose_b else Rows(k_b, n, at.n)
    columns, rows = core.sharing
    collide_a = where(core.shifted, where(columns > rows, 1, columns), columns)
    collide_b = where(core.shifted, where(rows >= columns, 1, rows), rows)
    from_a = _read_speed(at, core, a, columns, collide_a)
    from_b = _read_speed(at, core, b, rows, collide_b)
    c = Rows(m, n, at.n)
    requests = write(c)
    issue = _issue(c, requests, LATENCY_WRITE, OUTSTANDING_WRITES, np.ones_like(rows))
    mata = _channels(at, core, c, requests, np.ones_like(rows))
    out = np.minimum(np.minimum(128.0, L2_BYTES_PER_CYCLE / core.active), np.minimum(issue, mata))
    return _Bandwidth((from_a[0], from_b[0]), (from_a[1], from_b[1]), out)


def _memory(at: Problem) -> tuple[int, int, float]:
    """DDR bytes a cycle of the chip and of a core, and the clock factor, by the size of L2."""
    return (850, 37, 1.8) if at.l2_bytes == MIB_192 else (530, 27, 1.5)


def _read_speed(
    at: Problem, core: _Core, block: Rows, sharing: IntArray, colliding: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Bytes a cycle from L2 and from DDR."""
    ddr_chip, ddr_core, factor = _memory(at)
    requests = read(block)
    mata = _channels(at, core, block, requests, colliding)
    from_l2 = _issue(block, requests, LATENCY_L2, OUTSTANDING_READS, sharing)
    from_ddr = _issue(block, requests, LATENCY_DDR, OUTSTANDING_READS, sharing)
    l2 = np.minimum(np.minimum(L2_BYTES_PER_CYCLE / core.active, from_l2), np.minimum(128.0, mata))
    used = 2048 / core.active / factor * block.size_bytes / requests.covered_bytes
    ddr = np.minimum(
        np.minimum(ddr_chip / core.active, from_ddr), np.minimum(ddr_core, np.minimum(used, mata))
    )
    return l2, ddr


def _issue(block: Rows, requests: Requests, latency: int, outstanding: int, sharing: IntArray) -> FloatArray:
    """Bytes a cycle that outstanding requests allow, less the start-up of each block."""
    rate = outstanding * block.size_bytes / (latency * requests.count)
    lasting = sharing * block.size_bytes / rate
    share = lasting / (lasting + latency / 2) * np.where(block.single_fractal, 1.0, 0.75)
    speed: FloatArray = rate * share
    return speed


def _channels(at: Problem, core: _Core, block: Rows, requests: Requests, sharing: IntArray) -> FloatArray:
    """Bytes a cycle that the memory channels allow with colliding requests."""
    factor = _memory(at)[2]
    moved = sharing * block.rows * np.maximum(2 * block.length, 128) / 1e6
    penalty = sharing * (requests.colliding - 1) * requests.count / (1 - 0.91 * np.exp(-0.053 * moved)) * 0.03
    speed: FloatArray = block.size_bytes / (requests.count * core.active / 4 / factor + penalty)
    return speed


def _pipeline(
    at: Problem, found: Result, core: _Core, speed: _Bandwidth, double_l0c: BoolArray
) -> FloatArray:
    (patch_m, patch_n), (tile_m, tile_n), (k_a, k_b) = core.patch, core.tile, core.depth
    block = found.m_l0 * found.k_l0 * found.n_l0
    feed = np.maximum(2 * tile_m * core.l0_depth / 256 / block, 2 * tile_n * core.l0_depth / 128 / block)
    full_m, full_n = align_up(patch_m, 16), align_up(patch_n, 16)
    full_k = align_up(at.k, 16)
    volume = align_up(full_m, tile_m) * align_up(full_k, k_b) * align_up(full_n, tile_n)
    cube = volume / 4096 * np.maximum(1.0, feed)
    mte2 = _mte2(at, core, speed)
    mte2_tile = 2 * tile_m * k_a / speed.ddr[0] + 2 * tile_n * k_b / speed.ddr[1]
    repeats_a, repeats_b = core.l0_repeats
    mte1 = 2 * full_m * full_k * repeats_a / 256 + 2 * full_n * full_k * repeats_b / 128
    mte1_tile = 2 * tile_m * core.l0_depth / 256 + 2 * tile_n * core.l0_depth / 128
    fix = 2 * patch_m * patch_n / speed.out
    fix_tile = 2 * tile_m * tile_n / speed.out
    moves = mte2 + fix
    bound = np.fmax(np.maximum(cube, mte1), moves)
    unit_flag = ~core.shifted
    after_cube = np.where(unit_flag, np.maximum(fix - block, fix_tile), fix)
    after_cube = np.where(double_l0c, fix_tile, after_cube)
    before_moves = np.where(unit_flag, np.fmax(block, cube - block - mte2), np.fmax(block, cube - mte2))
    before_moves = np.where(double_l0c, block, before_moves)
    total: FloatArray = bound + np.where(
        bound == cube,
        mte2_tile + mte1_tile + after_cube,
        np.where(bound == moves, mte1_tile + before_moves, block + mte2_tile + fix),
    )
    return total


def _mte2(at: Problem, core: _Core, speed: _Bandwidth) -> FloatArray:
    """Cycles of bringing A and B into L1: from DDR at first, from L2 where it still holds them."""
    (patch_m, patch_n), (tile_m, tile_n), (k_a, k_b) = core.patch, core.tile, core.depth
    columns, rows = core.sharing
    repeats_a, repeats_b = core.l1_repeats
    bytes_a = 2 * where(core.inward, align_up(patch_m, tile_m) * align_up(at.k, k_a), patch_m * at.k)
    bytes_b = 2 * where(core.inward, align_up(patch_n, tile_n) * align_up(at.k, k_b), patch_n * at.k)
    (l2_a, l2_b), (ddr_a, ddr_b) = speed.l2, speed.ddr
    fits = ~core.shifted & (2 * (at.m * at.k + at.k * at.n + at.m * at.n) <= at.l2_bytes)
    resident = (
        bytes_a / ddr_a
        + bytes_a * (repeats_a - 1) / l2_a
        + bytes_b / ddr_b
        + bytes_b * (repeats_b - 1) / l2_b
    )
    steps_a, steps_b = ceil_div(at.k, k_a), ceil_div(at.k, k_b)
    all_a, all_b = 2 * at.m * at.k * steps_a, 2 * at.k * at.n * steps_b
    some_a, some_b = 2 * rows * tile_m * k_a * steps_a, 2 * columns * tile_n * k_b * steps_b
    limit = at.l2_bytes
    both = (all_a + all_b <= limit) | (all_a + some_b <= limit)
    only_b = ~both & ((all_b + some_a <= limit) | (some_a + some_b <= limit))
    miss_a = 1 / np.where(both, repeats_a * columns, columns)
    miss_b = 1 / np.where(both | only_b, repeats_b * rows, rows)
    streamed = bytes_a * repeats_a * ((1 - miss_a) / l2_a + miss_a / ddr_a)
    streamed = streamed + bytes_b * repeats_b * ((1 - miss_b) / l2_b + miss_b / ddr_b)
    return np.where(fits, resident, streamed)
