"""Cliffs along an axis: steps that leave the local trend, and their class by three points a boundary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from tilewatch.tasks.analyse.cliffs.curves import Curves
from tilewatch.tasks.analyse.cliffs.plateaus import Plateaus, plateaus
from tilewatch.tasks.analyse.cliffs.refine import measure_next
from tilewatch.tasks.analyse.cliffs.steps import Mask, Steps, effect_floor, steps, surprise
from tilewatch.tasks.analyse.statistics.limits import CliffLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers

Texts = npt.NDArray[np.object_]


@dataclass(frozen=True)
class Cliff:
    """One boundary that leaves the trend; ``low`` and ``low + 1`` are its rows in the curves."""

    low: int
    before: int
    after: int
    before_ns: float
    after_ns: float
    """Values on both sides: the points', or those fitted to sixteen points between noisy plateaus."""
    ratio: float
    trend_ratio: float
    kind: str
    measure_next: tuple[int, ...]


def find_cliffs(curves: Curves, limits: CliffLimits | None = None) -> list[Cliff]:
    """Cliffs of all curves, in the order of the rows.

    Upward and downward; the fall that ends a comb or spike belongs to it and is not a cliff of its own. A
    stretch that leaves the trend only because its neighbours grow is not one: the latency itself must move.
    """
    limits = limits or CliffLimits()
    every = steps(curves, limits)
    candidate = (np.abs(every.excess) > every.threshold) & _moves(curves, every, limits)
    kind, back = classify(curves, every, candidate, limits)
    kind, back = _falls_of_combs(curves, every, candidate, kind, back, limits)
    candidate &= ~_returns(every, candidate, kind, back)
    kind = _combs(curves, every, candidate, kind, back, limits)
    # A fall to a single fast point before a tooth ends the tooth before it, also if its next one is missing.
    candidate[:-1] &= ~((every.excess[:-1] < 0) & candidate[1:] & (kind[1:] == "comb"))
    fitted, between = _between_plateaus(curves, every, candidate, limits)
    kind[between] = np.where(fitted.jump[between] > 0, "step", "drop")
    found = []
    for step in np.flatnonzero(candidate | between):
        low = int(every.low[step])
        values = curves.value_ns[low : low + 2]
        if between[step]:
            values = np.exp([fitted.before[step], fitted.after[step]])
        before, after = int(curves.axis[low]), int(curves.axis[low + 1])
        first, last = np.searchsorted(curves.index, [curves.index[low], curves.index[low] + 1])
        sampled = curves.axis[first:last]
        found.append(
            Cliff(
                low, before, after, float(values[0]), float(values[1]), float(values[1] / values[0]),
                float(every.trend_ratio[step]), str(kind[step]), measure_next(before, after, sampled, limits),
            )
        )  # fmt: skip
    return found


def _between_plateaus(
    curves: Curves, every: Steps, candidate: Mask, limits: CliffLimits
) -> tuple[Plateaus, Mask]:
    """Steps that the points around them show although the two points alone do not: the surest in its reach.

    None near a cliff that was found already: it would be the same one, or the fit has two jumps in it.
    """
    fitted = plateaus(curves, every.low, limits.reach)
    if not len(every.low):
        return fitted, candidate
    size = np.abs(np.nan_to_num(fitted.statistic))
    floor = effect_floor(curves, every.low, limits)
    sure = (size > surprise(curves, every.low, limits) * limits.inflation) & (np.abs(fitted.jump) > floor)
    near = sliding_window_view(np.pad(candidate, limits.reach), 2 * limits.reach + 1).any(axis=1)
    best = sliding_window_view(np.pad(size, limits.reach), 2 * limits.reach + 1).max(axis=1)
    single = curves.axis[every.low + 1] - curves.axis[every.low] == 1
    return fitted, np.asarray(sure & ~near & (size == best) & single)


def _moves(curves: Curves, every: Steps, limits: CliffLimits) -> Mask:
    """Steps whose ratio itself is beyond the effect floor, to the side on which it leaves the trend."""
    floor = effect_floor(curves, every.low, limits)
    ratio = np.log(every.ratio)
    return np.asarray((np.sign(ratio) == np.sign(every.excess)) & (np.abs(ratio) > floor))


def _falls_of_combs(
    curves: Curves, every: Steps, candidate: Mask, kind: Texts, back: Integers, limits: CliffLimits
) -> tuple[Texts, Integers]:
    """Falls that are back at once, again and again, end the teeth of a comb: its teeth are the rises after.

    Where the period of a comb is a multiple of the alignment, each fast point is alone between slow ones: its
    fall does not remain, and without this it would be the cliff and the rise after it what leads back.
    """
    low = every.low
    second = _inside(curves, low, low + 2)
    dips = candidate & (kind == "dip") & (_share_left(curves, every, candidate, second) < limits.remaining)
    curve = curves.index[low]
    many = np.bincount(curve[dips], minlength=int(curve.max(initial=-1)) + 1)[curve] >= limits.comb_teeth
    falls = dips & many
    rises = np.zeros(len(falls), dtype=bool)
    rises[1:] = falls[:-1] & candidate[1:] & (every.excess[1:] > 0)
    kind, back = kind.copy(), back.copy()
    kind[falls] = "none"
    kind[rises] = "spike"
    back[rises] = low[rises] + 1
    candidate &= ~falls
    return kind, back


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
    third = np.where(
        (third < 0) & (_share_left(curves, every, candidate, second) < limits.remaining), second, third
    )
    rise = curves.value_ns[low + 1] - curves.value_ns[low] * every.trend_ratio
    remains = _share_left(curves, every, candidate, third) >= limits.remaining
    wide = axis[low + 1] - axis[low] > 1
    kind = np.select(
        [~candidate, wide | (third < 0), ~remains & (rise > 0), ~remains, rise > 0],
        ["none", "unrefined", "spike", "dip", "step"],
        "drop",
    )
    return kind.astype(object), third


def _share_left(curves: Curves, every: Steps, candidate: Mask, row: Integers) -> Floats:
    """Share of each step's rise that is left at ``row``, without growth of work; NaN where ``row`` is −1."""
    value, axis, low = curves.value_ns, curves.axis, every.low
    growth = _growth(curves, _without_steps(curves, every, candidate), low, row)
    rise = value[low + 1] - value[low] - growth * (axis[low + 1] - axis[low])
    left = value[row] - value[low] - growth * (axis[row] - axis[low])
    return np.where(row >= 0, left / np.where(rise == 0, 1.0, rise), np.nan)


def _without_steps(curves: Curves, every: Steps, candidate: Mask) -> Floats:
    """Values with what each candidate leaves the trend by taken off all that follow it in its curve.

    The mean slope of a staircase is its steps: taken for growth of work it would take every step away.
    """
    jump = np.zeros(len(curves.value_ns))
    low = every.low[candidate]
    jump[low + 1] = curves.value_ns[low + 1] - curves.value_ns[low] * every.trend_ratio[candidate]
    running = np.cumsum(jump)
    first = np.searchsorted(curves.index, curves.index, side="left")
    return np.asarray(curves.value_ns - (running - running[first] + jump[first]))


def _growth(curves: Curves, smooth: Floats, low: Integers, row: Integers) -> Floats:
    """Growth of work in ns per unit of the axis around the stretch from ``low`` to ``row``.

    The smaller of the slopes over a stretch as long on its left and on its right (at the ends of a curve half
    as long will do), so that noise is not carried farther than it was measured; 0 where neither is sampled,
    and never below it: more rows are never less work.
    """
    reach = curves.axis[row] - curves.axis[low]
    scale = int(curves.axis.max(initial=0)) * 2 + 1
    key = curves.index * scale + curves.axis
    first = np.searchsorted(curves.index, curves.index[low], side="left")
    last = np.searchsorted(curves.index, curves.index[low], side="right") - 1
    left = np.maximum(np.searchsorted(key, key[low] - reach, side="right") - 1, first)
    right = np.minimum(np.searchsorted(key, key[row] + reach, side="left"), last)
    slopes = []
    for start, end in ((left, low), (row, right)):
        width = curves.axis[end] - curves.axis[start]
        enough = (width > 0) & (2 * width >= reach)
        slope = (smooth[end] - smooth[start]) / np.where(enough, width, 1)
        slopes.append(np.where(enough, slope, np.nan))
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
    direction = np.sign(every.excess)
    end = np.searchsorted(every.low, back, side="left")
    for step in np.flatnonzero(candidate & ((kind == "spike") | (kind == "dip"))):
        if not returns[step]:
            inside = slice(step + 1, end[step])
            returns[inside] |= candidate[inside] & (direction[inside] == -direction[step])
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
