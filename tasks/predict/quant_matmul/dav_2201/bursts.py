"""The 2201 block search's cost model: bus requests of moving a block of rows, and how they collide.

Restates the predecessor of the closed matmul tiling library (cann-ops, cache tiling). Rows are read in bursts
of 512, 256 and 128 bytes by the address they start at; written in bursts of 256 and 128. Data counts as 2
bytes an element.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import BoolArray, IntArray, ceil_div, ints, where

MERGED_READ_BYTES = (32, 64, 128, 160, 192, 224, 256)


@dataclass(frozen=True)
class Rows:
    """A block of ``rows`` rows of ``length`` elements, ``stride`` elements apart."""

    rows: IntArray
    length: IntArray
    stride: IntArray

    @property
    def size_bytes(self) -> IntArray:
        """Bytes of the block."""
        return 2 * self.rows * self.length

    @property
    def single_fractal(self) -> BoolArray:
        """Contiguous rows of one 32-byte block each."""
        alone: BoolArray = (self.length == self.stride) & (2 * self.length == 32)
        return alone


@dataclass(frozen=True)
class Requests:
    """Bus requests of a block, the bytes their bursts cover, and the worst number that collide."""

    count: IntArray
    covered_bytes: IntArray
    colliding: IntArray


Bursts = tuple[IntArray, IntArray]


def read(block: Rows) -> Requests:
    """Requests of reading ``block``."""
    row = 2 * block.length
    merged = (block.length == block.stride) & np.isin(row, MERGED_READ_BYTES)
    row, rows = where(merged, row * block.rows, row), where(merged, 1, block.rows)
    stride = 2 * block.stride
    f512 = _from_512(row)
    further = tuple(_sum_rows(index, row, rows, stride, f512) for index in (0, 1))
    return Requests(f512[0] + further[0], f512[1] + further[1], _colliding_reads(row, rows, stride))


def _sum_rows(index: int, row: IntArray, rows: IntArray, stride: IntArray, f512: Bursts) -> IntArray:
    """Requests (0) or covered bytes (1) of every row after the first."""
    further = rows - 1
    by_start = (f512[index], _from_128(row)[index], _from_256(row)[index], _from_384(row)[index])
    half = further // 2 * by_start[0] + ceil_div(further, 2) * by_start[2]
    rest = further % 4
    first = where(stride % 384 == 0, 4 - rest, 1)
    quarter = further // 4 * sum(by_start[1:], start=by_start[0])
    for slot in range(4):
        quarter = quarter + where((slot >= first) & (slot < first + rest), by_start[slot], 0)
    total = np.select(
        [(stride % 512 == 0) | (further == 0), stride % 512 == 256, stride % 128 == 0],
        [further * by_start[0], half, quarter],
        0,
    )
    unaligned = (stride % 128 != 0) & (further > 0)
    if unaligned.any():
        total[unaligned] = _unaligned(index, row[unaligned], rows[unaligned], stride[unaligned])
    return ints(total)


def _unaligned(index: int, row: IntArray, rows: IntArray, stride: IntArray) -> IntArray:
    """Row by row: a first burst up to the next 128 bytes, then by the address reached."""
    number = np.arange(1, int(rows.max()), dtype=np.int64)[:, None]
    address = number * stride
    gap = -address % 128
    rest = row - gap
    start = (address + gap) // 128 % 4
    by_start = [f(rest)[index] for f in (_from_512, _from_128, _from_256, _from_384)]
    first = where(gap > 0, 1 if index == 0 else 128, 0)
    return ints(np.where(number < rows, first + np.choose(start, by_start), 0).sum(axis=0))


def _from_512(size: IntArray) -> Bursts:
    size = np.maximum(size, 0)
    whole, half = size // 512, size % 512 // 256
    rest = ceil_div(size % 256, 128)
    return whole + half + rest, 512 * whole + 256 * half + 128 * rest


def _from_256(size: IntArray) -> Bursts:
    short, long = _from_512(size), _from_512(size - 256)
    return where(size < 256, short[0], long[0] + 1), where(size < 256, short[1], long[1] + 256)


def _from_384(size: IntArray) -> Bursts:
    rest = _from_512(size - 128)
    return where(size > 0, rest[0] + 1, 0), where(size > 0, rest[1] + 128, 0)


def _from_128(size: IntArray) -> Bursts:
    rest = _from_256(size - 128)
    return where(size > 128, rest[0] + 1, ints(size > 0)), where(
        size > 128, rest[1] + 128, 128 * ints(size > 0)
    )


def _colliding_reads(row: IntArray, rows: IntArray, stride: IntArray) -> IntArray:
    """Most requests of a row that land on one channel, over the addresses rows start at."""

    def at_512(size: IntArray) -> IntArray:
        single = (size <= 128) | (size == 256) | (size >= 512)
        return where(single, 1, where(size <= 384, 2, 3))

    at_384 = where(row <= 128, 1, at_512(row - 128))
    at_256 = np.select([row <= 128, row < 256], [1, 2], at_512(row - 256))
    at_128 = np.select([row <= 128, row <= 256, row < 384], [1, 2, 3], np.maximum(2, at_512(row - 384)))
    by_start = np.stack([at_512(row), at_128, at_256, at_384])
    slot = np.arange(4)[:, None]
    reached = np.minimum(4, rows)
    upwards = np.where((slot == 0) | (slot < reached), by_start, 0).max(axis=0)
    downwards = np.where(slot >= 4 - reached, by_start, 0).max(axis=0)
    return ints(
        np.select(
            [
                (stride % 512 == 0) | (rows == 1),
                stride % 512 == 128,
                stride % 512 == 256,
                stride % 512 == 384,
            ],
            [by_start[0], upwards, np.maximum(by_start[0], by_start[2]), downwards],
            by_start.max(axis=0) + 1,
        )
    )


def write(block: Rows) -> Requests:
    """Requests of writing ``block``."""
    row = 2 * block.length
    merged = (row <= 256) & (block.length == block.stride)
    row, rows = where(merged, row * block.rows, row), where(merged, 1, block.rows)
    stride = 2 * block.stride
    from_256 = row // 256 + ceil_div(row % 256, 128)
    from_128 = ceil_div(row, 128)
    further = rows - 1
    half = further // 2 * from_256 + ceil_div(further, 2) * from_128 + from_256
    count = np.select([(stride % 256 == 0) | (further == 0), stride % 128 == 0], [rows * from_256, half], 0)
    unaligned = (stride % 128 != 0) & (further > 0)
    if unaligned.any():
        count[unaligned] = _unaligned_writes(row[unaligned], rows[unaligned], stride[unaligned])
    return Requests(ints(count), row * rows, _colliding_writes(row, stride))


def _unaligned_writes(row: IntArray, rows: IntArray, stride: IntArray) -> IntArray:
    from_256 = row // 256 + ceil_div(row % 256, 128)
    number = np.arange(1, int(rows.max()), dtype=np.int64)[:, None]
    address = number * stride
    rest = row % 256
    past = np.trunc((rest - (128 - address % 128) + 127) / 128).astype(np.int64) + 1
    ragged = 3 * (row // 256) + where(rest > 0, past, 0)
    each = np.select([address % 256 == 0, address % 128 == 0], [from_256, ceil_div(row, 128)], ragged)
    return ints(from_256 + np.where(number < rows, each, 0).sum(axis=0))


def _colliding_writes(row: IntArray, stride: IntArray) -> IntArray:
    def aligned(size: IntArray) -> IntArray:
        two = (size < 256) | ((size > 256) & (size <= 384)) | (size == 512)
        return ints(np.select([(size <= 128) | (size == 256), two, size < 512], [1, 2, 3], 2))

    ragged = np.select([row <= 128, row <= 256, row <= 384], [2, 3, 5], 6)
    return where(stride % 128 == 0, np.maximum(aligned(row), aligned(row - 512)), ints(ragged))
