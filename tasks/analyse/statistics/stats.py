"""Statistics over many points at once: Welch on logs, false discovery rate, intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers


@dataclass(frozen=True)
class Welch:
    """One row a point: difference of mean logs (candidate − base), its error, freedom and two-sided p."""

    difference: Floats
    error: Floats
    degrees: Floats
    p_value: Floats

    def interval(self, alpha: float) -> tuple[Floats, Floats]:
        """Ends of the ``1 - alpha`` interval of the ratio exp(difference); NaN where untested."""
        half = stats.t.ppf(1 - alpha / 2, self.degrees) * self.error
        return np.exp(self.difference - half), np.exp(self.difference + half)


def welch(
    mean: tuple[Floats, Floats],
    variance: tuple[Floats, Floats],
    count: tuple[Integers, Integers],
    extra_variance: Floats | float = 0.0,
    groups: tuple[Integers | int, Integers | int] = (1, 1),
) -> Welch:
    """Welch's unequal-variance t test of candidate against base, each a (base, candidate) pair of arrays.

    ``extra_variance`` is known variance of the difference that no process of one lease can show (between
    leases); it widens the error and counts as known, so freedom grows with its share (Satterthwaite). Where a
    side has fewer than two processes everything but the difference is NaN. ``groups`` is how many means were
    taken out of each side (one, or one a die): so many degrees of freedom are spent.
    """
    testable = (count[0] > groups[0]) & (count[1] > groups[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = [np.where(testable, v / n, np.nan) for v, n in zip(variance, count, strict=True)]
        total = parts[0] + parts[1] + extra_variance
        spent = zip(parts, count, groups, strict=True)
        freedom = total**2 / sum(part**2 / (n - g) for part, n, g in spent)
        difference = mean[1] - mean[0]
        error = np.sqrt(total)
        # No spread at all: any difference is beyond chance, none is not.
        freedom = np.where(testable & ~np.isfinite(freedom), 1e9, freedom)
        t = np.where(difference == 0, 0.0, difference / error)
    p = np.where(testable, 2 * stats.t.sf(np.abs(t), np.where(testable, freedom, 1.0)), np.nan)
    return Welch(difference, error, freedom, p)


def benjamini_hochberg(p_values: Floats) -> Floats:
    """Adjusted p values over the tested (not NaN) rows; untested rows stay NaN."""
    adjusted = np.full(len(p_values), np.nan)
    tested = ~np.isnan(p_values)
    if tested.any():
        adjusted[tested] = stats.false_discovery_control(p_values[tested], method="bh")
    return adjusted


def upper_spread(spread: Floats, degrees: Floats, confidence: float) -> Floats:
    """Upper ``confidence`` bound of a standard deviation estimated with ``degrees`` of freedom ."""
    return np.asarray(spread * np.sqrt(degrees / stats.chi2.ppf(1 - confidence, degrees)))
