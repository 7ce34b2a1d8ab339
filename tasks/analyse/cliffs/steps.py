"""Steps along a curve: each one-step ratio against the local trend of its neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from tilewatch.tasks.analyse.cliffs.curves import Curves, grouped_median
from tilewatch.tasks.analyse.statistics.limits import CliffLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Steps:
    """One row per pair of neighbouring points of a curve: ``low`` is the row of the point before it."""

    low: Integers
    ratio: Floats
    """Value after over value before."""
    trend_ratio: Floats
    """The same ratio by the local trend: the nearest one that growth of work explains."""
    threshold: Floats
    """How far, in logs, the ratio must leave the trend."""
    ambiguous: Mask
    """Gaps at an end of a curve where a step and growth of work cannot be told apart."""

    @property
    def excess(self) -> Floats:
        """Log distance of the ratio from the trend; positive is slower than the trend."""
        return np.asarray(np.log(self.ratio) - np.log(self.trend_ratio))


def steps(curves: Curves, limits: CliffLimits | None = None) -> Steps:
    """Every one-step ratio with the local trend and the threshold that its excess must pass."""
    limits = limits or CliffLimits()
    low = np.flatnonzero(np.diff(curves.index) == 0).astype(np.int64)
    value, after = curves.value_ns[low], curves.value_ns[low + 1]
    width = (curves.axis[low + 1] - curves.axis[low]).astype(np.float64)
    slope, ratio = (after - value) / width, after / value
    expected = [
        np.maximum(1 + trend * width / value, 0.5)
        for trend in _trends(slope, width, curves.index[low], value / curves.axis[low], limits)
    ]
    distance = np.abs(np.log(ratio / expected[1]))
    threshold = _threshold(curves, low, grouped_median(distance, curves.index[low]), limits)
    beyond_known = np.abs(np.log(ratio / expected[0])) > threshold
    ambiguous = (width > 1) & beyond_known & (distance <= threshold)
    return Steps(low, ratio, expected[1], threshold, ambiguous)


def _trends(
    slope: Floats, width: Floats, curve: Integers, proportional: Floats, limits: CliffLimits
) -> tuple[Floats, Floats]:
    """The slopes nearest to each step's own that lie between the trends on its two sides: known, possible.

    Where latency turns from flat to growing with work, the slope lies between the two trends and nothing is
    left over. The first and last steps lack a side. Nothing but no growth is known there; anything up to
    growth proportional to the axis value is possible.
    """
    before, after = (_side_trend(slope, width, curve, side, limits) for side in (-1, 1))
    ends = np.isnan(before) | np.isnan(after)
    low, high = np.fmin(before, after), np.fmax(before, after)
    low, flat = np.where(ends, np.fmin(low, 0.0), low), np.where(ends, np.fmax(high, 0.0), high)
    steep = np.where(ends, np.fmax(high, proportional), high)
    return np.asarray(np.clip(slope, low, flat)), np.asarray(np.clip(slope, low, steep))


def _side_trend(slope: Floats, width: Floats, curve: Integers, side: int, limits: CliffLimits) -> Floats:
    """Median slope of the neighbouring steps on one side (−1 or 1), weighted by their width; NaN for none.

    The weight keeps a one-row jump from outweighing a plateau. At least ``neighbours`` steps, and up to
    ``most_neighbours`` until they are as wide as the step itself: one-row slopes are mostly noise.
    """
    rows = np.arange(len(slope))
    slopes = np.full((len(slope), limits.most_neighbours), np.nan)
    weights = np.zeros((len(slope), limits.most_neighbours))
    for column in range(limits.most_neighbours):
        there = rows + side * (column + 1)
        valid = (there >= 0) & (there < len(slope))
        there = np.where(valid, there, 0)
        valid &= curve[there] == curve
        valid &= (column < limits.neighbours) | (weights.sum(axis=1) < width)
        slopes[:, column] = np.where(valid, slope[there], np.nan)
        weights[:, column] = np.where(valid, width[there], 0.0)
    order = np.argsort(slopes, axis=1)
    ordered = np.take_along_axis(slopes, order, axis=1)
    reached = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    middle = (reached >= reached[:, -1:] / 2).argmax(axis=1)
    return np.asarray(ordered[rows, middle])


def effect_floor(curves: Curves, low: Integers, limits: CliffLimits) -> Floats:
    """Smallest change of a step that counts, in logs: relative, or absolute near the tick of the timer."""
    absolute = limits.absolute_floor_ns / curves.value_ns[low]
    return np.asarray(np.log1p(np.maximum(limits.relative_floor, absolute)))


def surrounded(curves: Curves, low: Integers, reach: int) -> Mask:
    """Boundaries with ``reach`` points of their curve on either side."""
    first, last = np.maximum(low + 1 - reach, 0), np.minimum(low + reach, len(curves.axis) - 1)
    room = (low + 1 - reach >= 0) & (low + reach < len(curves.axis))
    own = curves.index[low]
    return np.asarray(room & (curves.index[first] == own) & (curves.index[last] == own))


def surprise(curves: Curves, low: Integers, limits: CliffLimits) -> Floats:
    """Standard errors beyond which a step of a curve as long as its own is not chance, one a step."""
    length = np.bincount(curves.index[low], minlength=int(curves.index.max(initial=-1)) + 1)
    return np.asarray(norm.isf(limits.false_curves / 2 / np.maximum(length, 1))[curves.index[low]])


def _threshold(curves: Curves, low: Integers, scatter: Floats, limits: CliffLimits) -> Floats:
    """Effect floor, curve scatter and process noise: the largest of them, in logs."""
    certain = np.log1p(limits.certain_rise)
    pooled = grouped_median(curves.error_log, curves.index)
    error = np.fmax(curves.error_log, pooled)
    noise = np.hypot(error[low], error[low + 1])
    by_scatter = np.minimum(limits.deviations * scatter, certain)
    dense = surrounded(curves, low, limits.reach)
    inflation = np.where(dense, limits.dense_inflation, limits.inflation)
    multiple = inflation * surprise(curves, low, limits)
    by_noise = np.where(np.isnan(noise), certain, multiple * noise)
    return np.asarray(np.maximum.reduce([effect_floor(curves, low, limits), by_scatter, by_noise]))
