"""The 2201 block search: every listed tile is split, deepened and costed; the first cheapest wins.

Restates the predecessor of the closed matmul tiling library (cann-ops, cache tiling), which CANN's own unit
tests agree with where it decides. Weight format plays no part: both sides count as ND.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import fields

import numpy as np

from tilewatch.tasks.predict.quant_matmul.dav_2201.cost import cycles
from tilewatch.tasks.predict.quant_matmul.dav_2201.depth import result
from tilewatch.tasks.predict.quant_matmul.dav_2201.problem import Problem, Result
from tilewatch.tasks.predict.quant_matmul.dav_2201.split import split

FEW_ROWS = 16
TILES = (
    (64, 64, 256), (64, 64, 512), (64, 64, 1024), (64, 128, 256), (64, 128, 512), (64, 256, 256),
    (128, 64, 256), (128, 64, 512), (128, 128, 256), (128, 128, 512), (256, 64, 256), (96, 320, 256),
    (128, 192, 256), (128, 256, 256), (192, 128, 256), (256, 128, 256), (320, 96, 256), (320, 64, 256),
    (64, 320, 256), (512, 64, 128), (64, 512, 128),
)  # fmt: skip
TILES_FEW_ROWS = ((16, 256, 64), (16, 256, 128), (16, 256, 256), (16, 256, 512), (16, 64, 32))
DOUBLE_L0C = ((64, 64, 1024), (128, 128, 512))
POINTS_AT_ONCE = 256
"""Bounds the memory that rows at unaligned addresses take: tiles × points × rows of a block."""

_REMEMBERED: OrderedDict[tuple[object, ...], Result] = OrderedDict()
REMEMBERED_PROBLEMS = 64


def search(at: Problem) -> Result:
    """The winning tile at every point. The last few problems are remembered: versions share them."""
    found = _REMEMBERED.get(at.identity)
    if found is None:
        found = _REMEMBERED[at.identity] = _search(at)
        if len(_REMEMBERED) > REMEMBERED_PROBLEMS:
            _REMEMBERED.popitem(last=False)
    return found


def _search(at: Problem) -> Result:
    few = at.m <= FEW_ROWS
    found = Result(*(np.empty(len(at), dtype=np.int64) for _ in fields(Result)))
    for points, tiles in ((np.flatnonzero(few), TILES_FEW_ROWS), (np.flatnonzero(~few), TILES)):
        for first in range(0, len(points), POINTS_AT_ONCE):
            some = points[first : first + POINTS_AT_ONCE]
            best = _best(at.take(some), tiles)
            for field in fields(Result):
                getattr(found, field.name)[some] = getattr(best, field.name)
    return found


def _best(at: Problem, tiles: tuple[tuple[int, int, int], ...]) -> Result:
    """The cheapest tile at every point; all tiles at all points are one long array, tile after tile."""
    count = len(at)
    every = at.take(np.tile(np.arange(count), len(tiles)))
    candidate = result(every, split(every, *np.repeat(np.array(tiles, dtype=np.int64), count, axis=0).T))
    double_l0c = np.repeat([tile in DOUBLE_L0C for tile in tiles], count)
    cost = cycles(every, candidate, double_l0c).reshape(len(tiles), count)
    # A cost can be NaN where C++ divides by zero; a comparison with it never wins.
    cheapest = np.argmin(np.where(np.isnan(cost), np.inf, cost), axis=0) * count + np.arange(count)
    return Result(*(getattr(candidate, field.name)[cheapest] for field in fields(Result)))
