"""The 2201 block search: how one candidate tile is dealt over the cores and what it keeps in L1.

Restates the predecessor of the closed matmul tiling library (cann-ops, cache tiling). Splits (parts along M,
parts along N) are visited in ascending order and compared one by one; the comparison is not an order, so the
sequence matters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewatch.tasks.predict.arithmetic.divisors import divisors, largest_divisor, smallest_divisor
from tilewatch.tasks.predict.arithmetic.integers import (
    BoolArray,
    FloatArray,
    IntArray,
    align_up,
    ceil_div,
    ints,
    where,
)
from tilewatch.tasks.predict.quant_matmul.dav_2201.problem import (
    BOTH,
    FULL_A,
    FULL_B,
    MIB_192,
    NONE,
    Problem,
    Tile,
    cost_of_reading,
    pick,
)

L0_BYTES = 65536
NO_SPLIT = 1 << 30
WORST_BLOCKS = float(2**31 - 1)


@dataclass(frozen=True)
class Limits:
    """Arithmetic intensities that separate regimes: the platform's upper and lower bounds and balances."""

    upper: float
    lower: float
    upper_balance: float
    lower_balance: float


@dataclass(frozen=True)
class Merit:
    """What two splits are compared by."""

    blocks: FloatArray
    ratio: FloatArray
    lopsided: IntArray
    score: FloatArray


def limits(at: Problem) -> Limits:
    """The bounds of the platform: by 24 cores first, then by the size of L2."""
    if at.cores == 24:
        up, low, up_balance, low_balance = 140, 73, 0.7, 0.8
    elif at.l2_bytes == MIB_192:
        up, low, up_balance, low_balance = 117, 61, 0.85, 1.0
    else:
        up, low, up_balance, low_balance = 195, 101, 0.5, 0.75
    return Limits(2.0 * up, 2.0 * low, up_balance, low_balance)


def split(at: Problem, tile_m: IntArray, tile_n: IntArray, tile_k: IntArray) -> Tile:
    """The best split of each point's candidate tile (elements; K tile as listed, doubled for int8)."""
    bound = limits(at)
    k = align_up(np.minimum(2 * tile_k, at.k), 32)
    m = align_up(np.minimum(tile_m, at.m), 32 if at.transpose_a else 16)
    n = align_up(np.minimum(tile_n, at.n), 16 if at.transpose_b else 32)
    start = Tile(m, n, k, ceil_div(at.m, m), ceil_div(at.n, n), ints(NONE), k)
    read_a, read_b = cost_of_reading(at.inner_a) * at.m, cost_of_reading(at.inner_b) * at.n
    intensity = 2 * at.m * at.n / (read_a * start.n_parts + read_b * start.m_parts)
    current = _intensity_reached(at, start, intensity)
    retile = intensity >= bound.lower
    best = Merit(
        np.full(len(at), WORST_BLOCKS), np.zeros(len(at)), np.full(len(at), at.cores), np.zeros(len(at))
    )
    winner = start
    for parts_m, parts_n in _splits(at, start):
        offered = parts_m < NO_SPLIT
        parts_m, parts_n = where(offered, parts_m, 1), where(offered, parts_n, 1)
        shaped = _retile(at, start, parts_m, parts_n, retile)
        candidate, merit = _evaluate(at, shaped, parts_m, parts_n, (read_a, read_b))
        better = offered & _better(at, merit, best, current, intensity, bound)
        winner = pick(better, candidate, winner)
        best = Merit(*(np.where(better, getattr(merit, f), getattr(best, f)) for f in Merit.__annotations__))
    return winner


def _intensity_reached(at: Problem, tile: Tile, intensity: FloatArray) -> FloatArray:
    area = at.m * at.n
    share = 0.4 * np.where(area >= at.l2_bytes, 0.6, np.where(area >= at.l2_bytes / 2, 0.8, 1.0))
    even = (16 * at.m_fractals % tile.m_parts == 0) & (16 * at.n_fractals % tile.n_parts == 0)
    most = np.where(even, 2 * at.k / 2, 2 * at.k * share / 2)
    reached: FloatArray = np.minimum(intensity, most)
    return reached


def _splits(at: Problem, tile: Tile) -> list[tuple[IntArray, IntArray]]:
    """Splits offered at every point, ascending; points with fewer of them end with NO_SPLIT."""
    cores, md, nd = at.cores, tile.m_parts, tile.n_parts
    g, h = np.gcd(md, cores), np.gcd(nd, cores)
    t, u = np.clip(md, 1, cores), np.clip(nd, 1, cores)
    everywhere = np.ones(len(at), dtype=np.bool_)
    offers = [
        (everywhere, g, np.minimum(nd, cores // g)),
        (everywhere, np.minimum(md, cores // h), h),
        (g == 1, t, cores // t),
        (h == 1, cores // u, u),
    ]
    ratio = cost_of_reading(at.inner_a) / cost_of_reading(at.inner_b)
    cuts = (
        (everywhere, np.sqrt(ratio * cores * tile.n / tile.m)),
        (everywhere, np.sqrt(cores * md * tile.m / (nd * tile.n) / ratio)),
        ((g == cores) | (h == cores), np.full(len(at), np.sqrt(cores))),
    )
    known = divisors(cores)
    for offered, cut in cuts:
        above = np.minimum(np.searchsorted(known, cut), len(known) - 1)
        below = np.where(cut >= cores, above, np.maximum(above - 1, 0))
        offers += [
            (offered, np.minimum(known[i], md), np.minimum(cores // known[i], nd)) for i in (above, below)
        ]
    codes = [
        where(offered, parts_m * NO_SPLIT + parts_n, NO_SPLIT * NO_SPLIT)
        for offered, parts_m, parts_n in offers
    ]
    ordered = np.sort(np.stack(codes), axis=0)
    return [(ints(row // NO_SPLIT), ints(row % NO_SPLIT)) for row in ordered]


def _retile(at: Problem, tile: Tile, parts_m: IntArray, parts_n: IntArray, allowed: BoolArray) -> Tile:
    """Smaller tiles of equal parts, where the layout lets a side be cut anywhere."""
    m, md, n, nd = tile.m, tile.m_parts, tile.n, tile.n_parts
    if not at.transpose_a:
        m, md = _even_tile(at.m, m, md, parts_m, allowed)
    if at.transpose_b:
        n, nd = _even_tile(at.n, n, nd, parts_n, allowed)
    return Tile(m, n, tile.k, md, nd, tile.load, tile.other_k)


def _even_tile(
    size: IntArray, tile: IntArray, parts: IntArray, cut: IntArray, allowed: BoolArray
) -> tuple[IntArray, IntArray]:
    rounds = ceil_div(parts, cut)
    busy = ceil_div(parts, rounds)
    even = 16 * ceil_div(align_up(size, 16), rounds * cut * 16)
    even_parts = ceil_div(size, even)
    accepted = allowed & (ceil_div(even_parts, ceil_div(even_parts, cut)) >= busy)
    return where(accepted, even, tile), where(accepted, even_parts, parts)


def _evaluate(
    at: Problem, tile: Tile, parts_m: IntArray, parts_n: IntArray, reads: tuple[FloatArray, FloatArray]
) -> tuple[Tile, Merit]:
    cores, md, nd = at.cores, tile.m_parts, tile.n_parts
    rounds_m, rounds_n = ceil_div(md, parts_m), ceil_div(nd, parts_n)
    blocks = rounds_m * rounds_n * np.maximum(1.0, parts_m * parts_n / cores)
    busy_m, busy_n = ceil_div(md, rounds_m), ceil_div(nd, rounds_n)
    busy = busy_m * busy_n
    ratio = busy / (ceil_div(busy, cores) * cores)
    in_l2 = at.l2_bytes // at.k >= np.minimum(at.m, at.n)
    m_reads, n_reads = where(in_l2, 1, rounds_n), where(in_l2, 1, rounds_m)
    read_a = reads[0] * np.where(parts_n == 1, 1.2, 1.0)
    read_b = reads[1] * np.where(parts_m == 1, 1.2, 1.0)

    def score(base: int, x: IntArray, y: IntArray) -> FloatArray:
        moved = read_a * (x - m_reads) + read_b * (y - n_reads) + 2.9 * (at.m * m_reads + at.n * n_reads)
        with np.errstate(divide="ignore"):
            value: FloatArray = base + 1.0 / moved
        return value

    q_a = _k_beside_full(at.kp, ceil_div(L0_BYTES, 32 * tile.n))
    q_b = _k_beside_full(at.kp, ceil_div(L0_BYTES, 32 * tile.m))
    both = (at.kp <= tile.k) & (2 * tile.k * (tile.m + tile.n) <= at.l1_bytes)
    full_a = (md <= parts_m) & (at.kp * tile.m + 2 * q_a * tile.n <= at.l1_bytes) & ~both
    full_b = (nd <= parts_n) & (at.kp * tile.n + 2 * q_b * tile.m <= at.l1_bytes) & ~both & ~full_a
    held = score(1, parts_n, parts_m)
    whole = score(3, parts_n, where((md <= parts_m) | (nd <= parts_n), parts_m, md))
    streamed = score(0, align_up(nd, parts_n), align_up(md, parts_m))
    load = ints(np.select([both, full_a, full_b], [BOTH, FULL_A, FULL_B], NONE))
    merit = Merit(
        blocks.astype(np.float64),
        ratio,
        np.abs(busy_m - busy_n),
        np.where(both, whole, np.where(full_a | full_b, held, streamed)),
    )
    other_k = where(full_a, q_a, where(full_b, q_b, tile.k))
    chosen = Tile(tile.m, tile.n, tile.k, np.minimum(parts_m, md), np.minimum(parts_n, nd), load, other_k)
    return chosen, merit


def _k_beside_full(kp: IntArray, at_least: IntArray) -> IntArray:
    """K tile of the streamed side while the other side is held whole: a divisor of K near ``at_least``."""
    count = kp // 32
    root = np.sqrt(count).astype(np.int64)
    small = smallest_divisor(count, at_least)
    small = where(small < root, small, count)
    large = count // largest_divisor(count, count // at_least)
    return 32 * where(at_least < root, small, large)


def _better(
    at: Problem, new: Merit, old: Merit, current: FloatArray, intensity: FloatArray, bound: Limits
) -> BoolArray:
    threshold = at.l2_bytes // at.k
    far_a = (at.inner_a % 512 != 0) | (at.m > threshold)
    far_b = (at.inner_b % 512 != 0) | (at.n > threshold)
    upper = far_a & far_b
    limit = np.where(upper, bound.upper, bound.lower)
    balance = np.where(upper, bound.upper_balance, bound.lower_balance)
    worse = np.minimum(new.ratio, old.ratio)
    by_score = (worse >= balance) & (intensity < limit * worse * worse)
    computing = _lexicographic((old.blocks - new.blocks, new.ratio - old.ratio, old.lopsided - new.lopsided))
    with np.errstate(invalid="ignore"):
        gain = np.where(new.score == old.score, 0.0, new.score - old.score)
    tail = (old.lopsided - new.lopsided, old.blocks - new.blocks)
    moving = _lexicographic((gain, old.ratio - new.ratio, *tail))
    filling = _lexicographic((new.ratio - old.ratio, gain, *tail))
    return np.where(current >= bound.upper, computing, np.where(by_score, moving, filling))


def _lexicographic(gains: tuple[FloatArray | IntArray, ...]) -> BoolArray:
    """Whether the first non-zero gain is positive."""
    better = np.zeros(len(gains[0]), dtype=np.bool_)
    for gain in reversed(gains):
        better = np.where(gain == 0, better, gain > 0)
    return better
