"""Intervals by bootstrap over launches, for many pairs at once; a launch is drawn with all its requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tilewatch.tasks.analyse.statistics.limits import ServingLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers
from tilewatch.tasks.analyse.statistics.stats import Welch, welch

_DRAWS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class LaunchTest:
    """One row a pair: Welch on log launch values and the bootstrap interval of the log ratio."""

    welch: Welch
    low: Floats
    high: Floats
    same_low: Floats
    same_high: Floats
    """Ends of the ``1 - 2 alpha`` interval, by which equality is judged."""
    counts: tuple[Integers, Integers]
    variance: tuple[Floats, Floats]


def launch_test(
    base: Sequence[Sequence[float]], candidate: Sequence[Sequence[float]], limits: ServingLimits
) -> LaunchTest:
    """Test of candidate against base, each a list of launch values a row; everything is NaN under two a side.

    Requests of one launch share its server, so they are no replication: a launch is drawn as a whole, with
    the requests its value is the mean of (Davison and Hinkley 1997, section 3.8: drawing them again would
    count their spread twice). With few launches the percentile interval is too narrow; its ends are taken at
    the expanded levels of Hesterberg (2015, section 4.3): Φ(−t·s), with t the quantile of Student's t at
    Welch's degrees of freedom and s the ratio of the Welch error to the one that the draws can show.
    """
    sides = [_padded([sorted(np.log(row)) for row in side]) for side in (base, candidate)]
    counts = [np.count_nonzero(~np.isnan(side), axis=1).astype(np.int64) for side in sides]
    means = [_mean(side, count) for side, count in zip(sides, counts, strict=True)]
    spread = [_variance(*parts) for parts in zip(sides, means, counts, strict=True)]
    tested = welch((means[0], means[1]), (spread[0], spread[1]), (counts[0], counts[1]))
    low, high, same_low, same_high = (np.full(len(base), np.nan) for _ in range(4))
    rows = np.flatnonzero((counts[0] > 1) & (counts[1] > 1))
    level, same_level = (_expanded_level(tested, spread, counts, a) for a in (limits.alpha, 2 * limits.alpha))
    size = max(1, _DRAWS_AT_ONCE // limits.resamples // max(1, sides[0].shape[1] + sides[1].shape[1]))
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        draws = np.random.default_rng(limits.seed)
        drawn = [
            _drawn(side[part], count[part], draws, limits) for side, count in zip(sides, counts, strict=True)
        ]
        differences = np.sort(drawn[1] - drawn[0], axis=1)
        low[part], high[part] = _ends(differences, level[part])
        same_low[part], same_high[part] = _ends(differences, same_level[part])
    return LaunchTest(tested, low, high, same_low, same_high, (counts[0], counts[1]), (spread[0], spread[1]))


def _padded(rows: Sequence[Sequence[float]]) -> Floats:
    width = max((len(row) for row in rows), default=0)
    matrix = np.full((len(rows), max(width, 1)), np.nan)
    for place, row in enumerate(rows):
        matrix[place, : len(row)] = row
    return matrix


def _mean(side: Floats, count: Integers) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.nansum(side, axis=1) / np.where(count > 0, count, np.nan))


def _variance(side: Floats, mean: Floats, count: Integers) -> Floats:
    squares = np.nansum((side - mean[:, None]) ** 2, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 1, squares / (count - 1), np.nan)


def _expanded_level(
    tested: Welch, spread: Sequence[Floats], counts: Sequence[Integers], alpha: float
) -> Floats:
    """Lower tail level of the percentile interval; 0.025 for many launches, less for few."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shown = sum(v * (n - 1) / n**2 for v, n in zip(spread, counts, strict=True))
        widening = np.where(shown > 0, tested.error / np.sqrt(shown), 1.0)
        return np.asarray(stats.norm.cdf(-stats.t.ppf(1 - alpha / 2, tested.degrees) * widening))


def _drawn(side: Floats, count: Integers, draws: np.random.Generator, limits: ServingLimits) -> Floats:
    """Means of resampled launches, [rows, resamples]; every row gets the same uniform draws."""
    uniform = draws.random((limits.resamples, side.shape[1]))
    place = np.minimum((uniform[None] * count[:, None, None]).astype(np.int64), count[:, None, None] - 1)
    values = np.take_along_axis(side[:, None, :], place, axis=2)
    used = np.arange(side.shape[1])[None, None, :] < count[:, None, None]
    return np.asarray(np.where(used, values, 0.0).sum(axis=2) / count[:, None])


def _ends(ordered: Floats, level: Floats) -> tuple[Floats, Floats]:
    """Quantiles of each sorted row at ``level`` and ``1 - level``, by the nearest draw outwards."""
    draws = ordered.shape[1]
    place = np.clip(np.floor(level * draws).astype(np.int64), 0, draws - 1)
    rows = np.arange(len(ordered))
    return ordered[rows, place], ordered[rows, draws - 1 - place]
