"""What the 2201 block search knows at every point: sizes, layout, platform limits, and a tile on its way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import (
    BoolArray,
    FloatArray,
    IntArray,
    align_up,
    ceil_div,
    where,
)
from tilewatch.tasks.predict.calls import Points, QuantMatmulCall
from tilewatch.tasks.predict.environment import Platform

NONE, FULL_B, FULL_A, BOTH = range(4)
MIB_192 = 201326592


@dataclass(frozen=True)
class Problem:
    """Shapes at P points and the platform. ``kp`` is K in whole int8 fractals of 32."""

    m: IntArray
    k: IntArray
    n: IntArray
    transpose_a: bool
    transpose_b: bool
    cores: int
    l1_bytes: int
    l2_bytes: int

    def __len__(self) -> int:
        return len(self.m)

    @property
    def kp(self) -> IntArray:
        """K rounded up to fractals, in elements."""
        return align_up(self.k, 32)

    @property
    def m_fractals(self) -> IntArray:
        """⌈M/16⌉."""
        return ceil_div(self.m, 16)

    @property
    def n_fractals(self) -> IntArray:
        """⌈N/16⌉."""
        return ceil_div(self.n, 16)

    @property
    def k_fractals(self) -> IntArray:
        """⌈K/32⌉."""
        return ceil_div(self.k, 32)

    @property
    def inner_a(self) -> IntArray:
        """Contiguous dimension of A."""
        return self.m if self.transpose_a else self.k

    @property
    def inner_b(self) -> IntArray:
        """Contiguous dimension of B."""
        return self.k if self.transpose_b else self.n

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for problems with the same answer."""
        sizes = tuple(array.tobytes() for array in (self.m, self.k, self.n))
        limits = (self.transpose_a, self.transpose_b, self.cores, self.l1_bytes, self.l2_bytes)
        return (*sizes, *limits)

    def take(self, chosen: IntArray) -> Problem:
        """The same problem at the points ``chosen``."""
        return Problem(
            self.m[chosen], self.k[chosen], self.n[chosen], self.transpose_a, self.transpose_b,
            self.cores, self.l1_bytes, self.l2_bytes,
        )  # fmt: skip


@dataclass(frozen=True)
class Tile:
    """A candidate at P points: ``m``, ``n``, ``k`` tile in elements, parts of the output, what L1 holds."""

    m: IntArray
    n: IntArray
    k: IntArray
    m_parts: IntArray
    n_parts: IntArray
    load: IntArray
    other_k: IntArray


@dataclass(frozen=True)
class Result:
    """Winner of the search, in fractals (16 rows or columns, 32 of K), with its buffers in L0C and L1."""

    m_parts: IntArray
    n_parts: IntArray
    m_l0: IntArray
    n_l0: IntArray
    k_l0: IntArray
    k_a_l1: IntArray
    k_b_l1: IntArray
    l0c_buffers: IntArray
    a_buffers: IntArray
    b_buffers: IntArray


Choice = TypeVar("Choice", Tile, Result)


def problem(call: QuantMatmulCall, at: Points, platform: Platform) -> Problem:
    """The block search's view of ``call``: both formats count as ND, the output as float16."""
    return Problem(
        at.m, at.k, at.n, call.transpose_x, call.transpose_w,
        platform.cube_cores, platform.l1_bytes, platform.l2_bytes,
    )  # fmt: skip


def cost_of_reading(inner: IntArray) -> FloatArray:
    """Weight of reading a matrix whose contiguous dimension is ``inner`` bytes: 1, 2 or 2.5."""
    return np.where(inner % 512 == 0, 1.0, np.where(inner > 512, 2.0, 2.5))


def pick(condition: BoolArray, yes: Choice, no: Choice) -> Choice:
    """``yes`` where the condition holds, ``no`` elsewhere, field by field."""
    names = type(yes).__dataclass_fields__
    return type(yes)(*(where(condition, getattr(yes, name), getattr(no, name)) for name in names))
