"""One robust centre of the process values of a point: a stalled process is held at a fence, not believed.

The centre is the mean of logs after values far from the point's median are moved to a fence (Winsorised). The
fence lies ``fence_scales`` robust standard deviations away: the larger of the point's own and that of all
points of its pool, so that quiet noise is never touched and the centre is the plain mean with all its
power. Where values were moved, variance and freedom are those of Dixon and Tukey (1968): with h values left
in their place the variance is multiplied by ((n − 1)/(h − 1))² and has h − 1 degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewatch.tasks.analyse.statistics.limits import RobustLimits

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_NORMAL_MEDIAN = 1.4826
"""Median absolute deviation to standard deviation, for normal noise."""


@dataclass(frozen=True)
class Held:
    """``logs`` with stalls at their fence, and how many values of each point stayed in their place."""

    logs: Floats
    kept: Integers


def hold_stalls(logs: Floats, starts: Integers, pool: Integers, limits: RobustLimits | None = None) -> Held:
    """Logs of process values, rising within each point (from ``starts`` on), with stalls held at the fence.

    ``pool`` is an integer a point: points that share one share their scatter.
    """
    limits = limits or RobustLimits()
    counts = np.diff(np.append(starts, len(logs)))
    if not len(starts):
        return Held(logs, counts.astype(np.int64))
    point = np.repeat(np.arange(len(starts)), counts)
    median = middles(logs, starts, counts)
    away = np.abs(logs - median[point])
    order = np.lexsort((away, point))
    # The median of few values lies closer to them than the truth does: n/(n − 1) is right on average.
    own = _NORMAL_MEDIAN * middles(away[order], starts, counts) * np.sqrt(counts / np.maximum(counts - 1, 1))
    fence = np.maximum(
        limits.fence_scales * np.maximum(own, _pooled(away, point, counts, pool)), limits.least_fence
    )
    held = np.clip(logs, (median - fence)[point], (median + fence)[point])
    moved = np.bincount(point, held != logs, len(starts)).astype(np.int64)
    return Held(held, counts - moved)


def middles(ordered: Floats, starts: Integers, counts: Integers) -> Floats:
    """Median of each run of sorted values."""
    return np.asarray((ordered[starts + (counts - 1) // 2] + ordered[starts + counts // 2]) / 2)


def widened(variance: Floats, counts: Integers, kept: Integers) -> Floats:
    """The variance of Winsorised values as that of the mean of ``counts`` free ones would have to be."""
    return np.asarray(variance * ((counts - 1) / np.maximum(kept - 1, 1)) ** 2)


def _pooled(away: Floats, point: Integers, counts: Integers, pool: Integers) -> Floats:
    """Robust scale of all deviations of each pool, of points with three values or more.

    A deviation of 0 is the median itself where the number of values is odd, and says nothing.
    """
    said = (away > 0) & (counts[point] > 2)
    found = np.zeros(int(pool.max(initial=-1)) + 1)
    scaled = away[said] * np.sqrt(counts[point[said]] / (counts[point[said]] - 1))
    of = pool[point[said]]
    for one in np.unique(of):
        found[one] = _NORMAL_MEDIAN * np.median(scaled[of == one])
    return found[pool]
