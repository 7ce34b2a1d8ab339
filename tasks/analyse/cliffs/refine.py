"""What to measure next: the axis values that place a boundary, class it, or tell a step from growth."""

from __future__ import annotations

import numpy as np

from tilewatch.tasks.analyse.cliffs.curves import Curves
from tilewatch.tasks.analyse.cliffs.steps import steps
from tilewatch.tasks.analyse.statistics.limits import CliffLimits
from tilewatch.tasks.analyse.statistics.process_values import Integers


def measure_next(
    before: int, after: int, sampled: Integers, limits: CliffLimits | None = None
) -> tuple[int, ...]:
    """Axis values to measure so that the boundary between ``before`` and ``after`` can be placed and classed.

    Over a gap: its two ends and an aligned boundary in the middle. For neighbouring values: the one before
    and the next aligned one. Values that the curve has are left out.
    """
    alignment = (limits or CliffLimits()).alignment
    if after - before > 1:
        middle = (before + after) // 2
        middle = max(middle // alignment * alignment, before)
        wanted = {before + 1, middle, middle + 1, after - 1}
    else:
        wanted = {before - 1, after // alignment * alignment + alignment}
    return tuple(sorted(v for v in wanted if v > 0 and v not in sampled))


def open_gaps(curves: Curves, limits: CliffLimits | None = None) -> list[tuple[int, tuple[int, ...]]]:
    """Gaps at the ends of curves whose rise may be a step or growth of work: row below, values to measure."""
    limits = limits or CliffLimits()
    every = steps(curves, limits)
    found = []
    for step in np.flatnonzero(every.ambiguous):
        low = int(every.low[step])
        before, after = int(curves.axis[low]), int(curves.axis[low + 1])
        found.append((low, measure_next(before, after, np.array([before, after]), limits)))
    return found
