"""Cliffs along an axis: steps that leave the local trend, their class, and what to measure next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.analyse.curves import Curves, grouped_median
from tasks.analyse.limits import CliffLimits
from tasks.analyse.process_values import Floats, Integers

Mask = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]


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

    @property
    def excess(self) -> Floats:
        """Log distance of the ratio from the trend; positive is slower than the trend."""
        return np.asarray(np.log(self.ratio) - np.log(self.trend_ratio))


@dataclass(frozen=True)
class Cliff:
    """One boundary that leaves the trend; ``low`` and ``low + 1`` are its rows in the curves."""

    low: int
    before: int
    after: int
    ratio: float
    trend_ratio: float
    kind: str
    measure_next: tuple[int, ...]


def steps(curves: Curves, limits: CliffLimits | None = None) -> Steps:
    """Every one-step ratio with the local trend and the threshold that its excess must pass."""
    limits = limits or CliffLimits()
    low = np.flatnonzero(np.diff(curves.index) == 0).astype(np.int64)
    value, after = curves.value_ns[low], curves.value_ns[low + 1]
    width = (curves.axis[low + 1] - curves.axis[low]).astype(np.float64)
    slope = (after - value) / width
    trend = _trend(slope, width, curves.index[low], value / curves.axis[low], limits.neighbours)
    expected = np.maximum(value + trend * width, value / 2)
    ratio, trend_ratio = after / value, expected / value
    distance = np.abs(np.log(ratio / trend_ratio))
    scatter = grouped_median(distance, curves.index[low])
    return Steps(low, ratio, trend_ratio, _threshold(curves, low, scatter, limits))


def _trend(slope: Floats, width: Floats, curve: Integers, proportional: Floats, reach: int) -> Floats:
    """The slope nearest to each step's own that lies between the trends on its two sides.

    A side's trend is the median slope of its next ``reach`` steps weighted by their width, so that a one-row
    jump does not outweigh a plateau. Where latency turns from flat to growing with work, the slope lies
    between the two trends and nothing is left over. The first and last steps lack a side; there anything from
    no growth to growth proportional to the axis value may be work.
    """
    before = _side_trend(slope, width, curve, range(-1, -reach - 1, -1))
    after = _side_trend(slope, width, curve, range(1, reach + 1))
    ends = np.isnan(before) | np.isnan(after)
    low, high = np.fmin(before, after), np.fmax(before, after)
    low = np.where(ends, np.fmin(low, 0.0), low)
    high = np.where(ends, np.fmax(high, proportional), high)
    return np.asarray(np.clip(slope, low, high))


def _side_trend(slope: Floats, width: Floats, curve: Integers, offsets: range) -> Floats:
    rows = np.arange(len(slope))
    slopes, weights = np.full((len(slope), len(offsets)), np.nan), np.zeros((len(slope), len(offsets)))
    for column, offset in enumerate(offsets):
        there = rows + offset
        valid = (there >= 0) & (there < len(slope))
        there = np.where(valid, there, 0)
        valid &= curve[there] == curve
        slopes[:, column] = np.where(valid, slope[there], np.nan)
        weights[:, column] = np.where(valid, width[there], 0.0)
    order = np.argsort(slopes, axis=1)
    ordered = np.take_along_axis(slopes, order, axis=1)
    reached = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    middle = (reached >= reached[:, -1:] / 2).argmax(axis=1)
    return np.asarray(ordered[rows, middle])


def _threshold(curves: Curves, low: Integers, scatter: Floats, limits: CliffLimits) -> Floats:
    """Effect floor, curve scatter and process noise: the largest of them, in logs."""
    certain = np.log1p(limits.certain_rise)
    pooled = grouped_median(curves.error_log, curves.index)
    error = np.fmax(curves.error_log, pooled)
    noise = np.hypot(error[low], error[low + 1])
    floor = np.maximum(
        np.log1p(limits.relative_floor), np.log1p(limits.absolute_floor_ns / curves.value_ns[low])
    )
    by_scatter = np.minimum(limits.deviations * scatter, certain)
    by_noise = np.where(np.isnan(noise), certain, limits.noise_multiple * noise)
    return np.asarray(np.maximum.reduce([floor, by_scatter, by_noise]))


def find_cliffs(curves: Curves, limits: CliffLimits | None = None) -> list[Cliff]:
    """Cliffs of all curves, in the order of the rows.

    Upward and downward; the fall that ends a comb or spike belongs to it and is no cliff of its own.
    """
    limits = limits or CliffLimits()
    every = steps(curves, limits)
    candidate = np.abs(every.excess) > every.threshold
    kind, back = classify(curves, every, candidate, limits)
    candidate &= ~_returns(every, candidate, kind, back)
    kind = _combs(curves, every, candidate, kind, back, limits)
    found = []
    for step in np.flatnonzero(candidate):
        low = int(every.low[step])
        before, after = int(curves.axis[low]), int(curves.axis[low + 1])
        sampled = curves.axis[curves.index == curves.index[low]]
        found.append(
            Cliff(
                low, before, after, float(every.ratio[step]), float(every.trend_ratio[step]), str(kind[step]),
                measure_next(before, after, sampled, limits),
            )
        )  # fmt: skip
    return found


def classify(curves: Curves, every: Steps, candidate: Mask, limits: CliffLimits) -> tuple[Texts, Integers]:
    """Class of each candidate by three points: before, after, and the next aligned value of the curve.

    Returns the class (``none`` for other steps; ``spike`` and ``dip`` for every rise and fall that does not
    remain) and the row of the third point, −1 where the curve has none; such a cliff, and one over a gap of
    the axis, is ``unrefined``.
    """
    low = every.low
    axis = curves.axis
    third = _next_aligned(curves, low + 1, limits.alignment)
    second = _inside(curves, low, low + 2)
    # A value that is back at once needs no aligned one to show that the rise does not remain.
    third = np.where((third < 0) & (_share_left(curves, every, second) < limits.remaining), second, third)
    rise = curves.value_ns[low + 1] - curves.value_ns[low] * every.trend_ratio
    remains = _share_left(curves, every, third) >= limits.remaining
    wide = axis[low + 1] - axis[low] > 1
    kind = np.select(
        [~candidate, wide | (third < 0), ~remains & (rise > 0), ~remains, rise > 0],
        ["none", "unrefined", "spike", "dip", "step"],
        "drop",
    )
    return kind.astype(object), third


def _share_left(curves: Curves, every: Steps, row: Integers) -> Floats:
    """Share of each step's rise that is left at ``row``, without growth of work; NaN where ``row`` is −1."""
    value, axis, low = curves.value_ns, curves.axis, every.low
    growth = _growth(curves, low, row)
    rise = value[low + 1] - value[low] - growth * (axis[low + 1] - axis[low])
    left = value[row] - value[low] - growth * (axis[row] - axis[low])
    return np.where(row >= 0, left / np.where(rise == 0, 1.0, rise), np.nan)


def _growth(curves: Curves, low: Integers, row: Integers) -> Floats:
    """Growth of work in ns per unit of the axis around the stretch from ``low`` to ``row``.

    The smaller of the slopes over a stretch as long on its left and on its right, so that noise is not
    carried farther than it was measured; 0 where neither is sampled, and never below it: more rows are never
    less work.
    """
    reach = curves.axis[row] - curves.axis[low]
    scale = int(curves.axis.max(initial=0)) * 2 + 1
    key = curves.index * scale + curves.axis
    left = np.searchsorted(key, key[low] - reach, side="right") - 1
    right = np.searchsorted(key, key[row] + reach, side="left")
    slopes = []
    for start, end in ((left, low), (row, right)):
        inside = (start >= 0) & (end < len(key))
        start, end = np.where(inside, start, 0), np.where(inside, end, 0)
        width = curves.axis[end] - curves.axis[start]
        inside &= (curves.index[start] == curves.index[end]) & (width > 0)
        slope = (curves.value_ns[end] - curves.value_ns[start]) / np.where(inside, width, 1)
        slopes.append(np.where(inside, slope, np.nan))
    return np.asarray(np.fmax(np.nan_to_num(np.fmin(*slopes)), 0.0))


def _inside(curves: Curves, low: Integers, row: Integers) -> Integers:
    """``row`` where it belongs to the curve of ``low``, else −1."""
    exists = row < len(curves.axis)
    same = curves.index[np.where(exists, row, low)] == curves.index[low]
    return np.where(exists & same, row, -1)


def _next_aligned(curves: Curves, rows: Integers, alignment: int) -> Integers:
    """Row of the first aligned axis value after each of ``rows`` within its curve; −1 where none is."""
    aligned = np.where(curves.axis % alignment == 0, np.arange(len(curves.axis)), len(curves.axis))
    following = np.minimum.accumulate(aligned[::-1])[::-1]
    following = np.append(following, len(curves.axis))[rows + 1]
    inside = following < len(curves.axis)
    same = curves.index[np.where(inside, following, 0)] == curves.index[rows]
    return np.where(inside & same, following, -1).astype(np.int64)


def _returns(every: Steps, candidate: Mask, kind: Texts, back: Integers) -> Mask:
    """Steps that only lead back from a spike or dip: they end by its third point and point the other way."""
    returns = np.zeros(len(candidate), dtype=bool)
    for step in np.flatnonzero(candidate & ((kind == "spike") | (kind == "dip"))):
        if returns[step]:
            continue
        inside = (every.low > every.low[step]) & (every.low < back[step])
        returns |= inside & candidate & (np.sign(every.excess) == -np.sign(every.excess[step]))
    return returns


def _combs(
    curves: Curves, every: Steps, candidate: Mask, kind: Texts, back: Integers, limits: CliffLimits
) -> Texts:
    """A spike is a tooth of a comb where its curve has more of them, or where it stays up until aligned.

    A dip is reported as the drop that it is.
    """
    teeth = candidate & (kind == "spike")
    curve = curves.index[every.low]
    many = np.bincount(curve[teeth], minlength=int(curve.max(initial=-1)) + 1)[curve] >= limits.comb_teeth
    second = np.minimum(every.low + 2, len(curves.axis) - 1)
    between = (every.low + 2 < back) & (
        np.abs(np.log(curves.value_ns[second] / curves.value_ns[every.low + 1])) < np.abs(every.excess) / 2
    )
    result = kind.copy()
    result[teeth & (many | between)] = "comb"
    result[kind == "dip"] = "drop"
    return result


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
