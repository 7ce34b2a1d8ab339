"""Windows of QuantBatchMatmulV3 on NpuArch 3510 (950): edge rebalance, A full load, split of the last round.

Restates ops-nn's arch35 adaptive sliding window tiling. A window is one round of base blocks over the cores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import BoolArray, IntArray, align_up, ceil_div, mask, where
from tilewatch.tasks.predict.calls import NZ, Points, QuantMatmulCall
from tilewatch.tasks.predict.quant_matmul.dav_3510.base import CUBE_SIDE, INT8_INNER, Base

LONG_SIDE = 1792
SHORT_K = 1024
WINDOW_ROWS = 4


@dataclass(frozen=True)
class Windows:
    """Cut of the output over the points. ``tail_tile``: pieces of each block in the last round, (m, n).

    ``edge_splits`` and ``edge_main``: rebalanced edge blocks and their side, (m, n); 1 and 0 where untouched.
    """

    base_m: IntArray
    rows: IntArray
    columns: IntArray
    rounds: IntArray
    last_round: IntArray
    used_cores: IntArray
    full_load_a: BoolArray
    edge_splits: tuple[IntArray, IntArray]
    edge_main: tuple[IntArray, IntArray]
    tail_tile: tuple[IntArray, IntArray]


def windows(
    call: QuantMatmulCall, at: Points, base: Base, cores: int, l1_bytes: int, tensor_api: bool
) -> Windows:
    """Rounds, cores and edge treatment of ``base`` at every point."""
    rows, columns = ceil_div(at.m, base.m), ceil_div(at.n, base.n)
    total = rows * columns
    rounds, last = ceil_div(total, cores), total % cores
    m_splits, m_main = _rebalance_rows(call, at, base, rows, columns)
    n_splits, n_main = _rebalance_columns(call, at, base, rows, columns, cores)
    edge_m = where(m_splits == 1, base.m, m_main)
    full = _full_load_a(at, edge_m, rows, columns, cores, l1_bytes, tensor_api)
    reset = full & (base.m != edge_m)
    m_splits, m_main = where(reset, 1, m_splits), where(reset, 0, m_main)
    base_m = where(reset, edge_m, base.m)
    split = base.tail_split & (last > 0)
    full_n = _split_full_load(call, base.n, last, cores, split & full)
    m_tile, n_tile = _split_last_round(
        call, at, base_m, base.n, m_main, (rows, columns), cores, split & ~full
    )
    n_tile = where(full, full_n, n_tile)
    used = where((rounds > 1) | (last == 0), cores, last * m_tile * n_tile)
    return Windows(
        base_m,
        rows,
        columns,
        rounds,
        last,
        used,
        full,
        (m_splits, n_splits),
        (m_main, n_main),
        (m_tile, n_tile),
    )


def _rebalance_rows(
    call: QuantMatmulCall, at: Points, base: Base, rows: IntArray, columns: IntArray
) -> tuple[IntArray, IntArray]:
    """Share a short last row block with its neighbours of the same window column."""
    tail = at.m % base.m
    allowed = (rows > 1) & (columns > 1) & (tail > 0) & ((at.k % 128 == 0) | (at.m >= LONG_SIDE))
    if call.transpose_x:
        allowed &= False
    width = np.minimum(WINDOW_ROWS, rows)
    main_windows = rows // width - 1
    tail_width = rows - main_windows * width
    best = (main_windows + 1) * base.m
    limit = np.minimum((base.m - tail) // CUBE_SIDE, rows)
    splits, main = np.ones_like(at.m), np.zeros_like(at.m)
    shared, step = tail_width - 1, 1
    while (open_ := allowed & (shared < limit)).any():
        side = align_up(ceil_div(shared * base.m + tail, shared + 1), CUBE_SIDE)
        cost = (main_windows + 1 - step) * base.m + step * side
        better = open_ & (cost <= best)
        best = where(better, cost, best)
        splits, main = where(better, shared + 1, splits), where(better, side, main)
        shared, step = shared + width, step + 1
    return splits, main


def _rebalance_columns(
    call: QuantMatmulCall, at: Points, base: Base, rows: IntArray, columns: IntArray, cores: int
) -> tuple[IntArray, IntArray]:
    """Share a narrow last column block with its neighbours where B is read by rows."""
    tail = at.n % base.n
    allowed = (rows > 1) & (columns > 1) & (tail > 0) & ((at.k % 128 == 0) | (at.n >= LONG_SIDE))
    allowed &= ~((at.k < SHORT_K) | ((at.k == SHORT_K) & (columns >= 8)))
    if not call.transpose_w:
        allowed &= False
    rounds = ceil_div(rows * columns, cores)
    main_rounds = ceil_div((columns - 1) * rows + rows % cores, cores)
    aligned = (rows % cores == 0) & ((columns % 4 == 0) | (4 % columns == 0))
    main_rounds = where((rows * columns <= cores) | aligned, rounds, main_rounds)
    best = main_rounds * base.n + (rounds - main_rounds) * tail
    limit = np.minimum((base.n - tail) // CUBE_SIDE, columns)
    splits, main = np.ones_like(at.n), np.zeros_like(at.n)
    for shared in range(1, int(limit.max())):
        side = align_up(ceil_div(shared * base.n + tail, shared + 1), CUBE_SIDE)
        last = shared * (base.n - side) + tail
        whole = ceil_div((columns - 1 - shared) * rows + (shared + 1) * rows % cores, cores)
        whole = where(shared < columns - 1, whole, 0)
        reduced = np.minimum(ceil_div(shared * rows + rows % cores, cores), rounds - whole)
        cost = whole * base.n + reduced * side + (rounds - whole - reduced) * last
        better = allowed & (shared < limit) & (cost < best)
        best = where(better, cost, best)
        splits, main = where(better, shared + 1, splits), where(better, side, main)
    return splits, main


def _full_load_a(
    at: Points,
    edge_m: IntArray,
    rows: IntArray,
    columns: IntArray,
    cores: int,
    l1_bytes: int,
    tensor_api: bool,
) -> BoolArray:
    """Whether one row block of A stays in L1 for the whole of K."""
    divides = cores % rows == 0
    if tensor_api:
        fits = edge_m * at.k <= l1_bytes // 2
        return mask(fits & (rows < 4) & divides & (rows * columns > cores), len(at))
    few = (np.isin(rows, (1, 2, 4)) & divides) | (rows * columns <= cores)
    fits = edge_m * align_up(at.k, INT8_INNER) <= l1_bytes // 2
    return mask(fits & (rows <= columns) & few, len(at))


def _split_full_load(
    call: QuantMatmulCall, base_n: IntArray, last: IntArray, cores: int, active: BoolArray
) -> IntArray:
    """Pieces of a block's columns in the last round under A full load."""
    tile = np.ones_like(base_n)
    for pieces in range(2, cores + 1):
        active = active & (last * pieces <= cores) & (base_n // pieces >= CUBE_SIDE)
        if not active.any():
            break
        tile = where(active & _whole_fractals(call, base_n, pieces), pieces, tile)
    return tile


def _whole_fractals(call: QuantMatmulCall, base_n: IntArray, pieces: int | IntArray) -> BoolArray:
    """An NZ weight can only be cut where the pieces are whole fractals wide."""
    if call.weight_format != NZ:
        return np.ones(len(base_n), dtype=np.bool_)
    whole: BoolArray = base_n // pieces % INT8_INNER == 0
    return whole


def _split_last_round(
    call: QuantMatmulCall,
    at: Points,
    base_m: IntArray,
    base_n: IntArray,
    m_main: IntArray,
    counts: tuple[IntArray, IntArray],
    cores: int,
    active: BoolArray,
) -> tuple[IntArray, IntArray]:
    """Grow the pieces of both axes in turn, the one with the larger tail first, while cores remain."""
    rows, columns = counts
    total = rows * columns
    last = np.maximum(total % cores, 1)
    m_first = at.m - (rows - 1) * base_m >= at.n - (columns - 1) * base_n
    height = np.minimum(at.m, where(m_main > 0, m_main, base_m))
    width = np.minimum(at.n, base_n)
    limits = (
        np.minimum(cores // last, ceil_div(height, CUBE_SIDE)),
        np.minimum(cores // last, ceil_div(width, CUBE_SIDE if call.transpose_w else INT8_INNER)),
    )
    pieces = [np.ones_like(at.m), np.ones_like(at.m)]
    valid = [np.ones_like(at.m), np.ones_like(at.m)]
    aligned = [np.ones_like(at.m), np.ones_like(at.m)]
    contiguous = (call.transpose_x, not call.transpose_w)
    one_round = total <= cores
    while True:
        grown = np.zeros(len(at), dtype=np.bool_)
        for turn in (0, 1):
            for axis, size in ((0, height), (1, width)):
                mine = active & (m_first if axis == turn else ~m_first)
                fits = mine & (pieces[axis] < limits[axis])
                fits &= (pieces[axis] + 1) * pieces[1 - axis] * last <= cores
                pieces[axis] = where(fits, pieces[axis] + 1, pieces[axis])
                good = fits & _whole_fractals(call, base_n, pieces[1]) if axis else fits
                valid[axis] = where(good, pieces[axis], valid[axis])
                if contiguous[axis]:
                    even = good & one_round & (ceil_div(size, pieces[axis]) % INT8_INNER == 0)
                    aligned[axis] = where(even, pieces[axis], aligned[axis])
                grown |= fits
        if not grown.any():
            break
    m_tile, n_tile = (where(aligned[axis] > 1, aligned[axis], valid[axis]) for axis in (0, 1))
    return m_tile, n_tile
