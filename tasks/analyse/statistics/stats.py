"""Statistics over many points at once: Welch on logs, false discovery rate, intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers

CERTAIN = 1e9
"""Degrees of freedom of a variance that is known."""


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
    degrees: tuple[Floats, Floats] | None = None,
) -> Welch:
    """Welch's unequal-variance t test of candidate against base, each a (base, candidate) pair of arrays.

    ``variance`` is that of one value, ``degrees`` its degrees of freedom (n − 1 if not given). Where a side
    has none everything but the difference is NaN.
    """
    free = degrees or (count[0] - 1.0, count[1] - 1.0)
    testable = (free[0] > 0) & (free[1] > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = [np.where(testable, v / n, np.nan) for v, n in zip(variance, count, strict=True)]
        freedom = (parts[0] + parts[1]) ** 2 / sum(p**2 / f for p, f in zip(parts, free, strict=True))
    # No spread at all: any difference is beyond chance, none is not.
    freedom = np.where(testable & ~np.isfinite(freedom), CERTAIN, freedom)
    return tested(mean[1] - mean[0], parts[0] + parts[1], freedom)


def tested(difference: Floats, variance: Floats, degrees: Floats) -> Welch:
    """Student's t test of a difference with this variance, which is known with ``degrees`` of freedom."""
    error = np.sqrt(variance)
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.where(difference == 0, 0.0, difference / error)
    p = np.where(np.isnan(error), np.nan, 2 * stats.t.sf(np.abs(t), np.where(degrees > 0, degrees, 1.0)))
    return Welch(difference, error, degrees, p)


def added(variance: Floats, degrees: Floats, more: Floats, more_degrees: Floats) -> tuple[Floats, Floats]:
    """The sum of two independent variances and its degrees of freedom (Satterthwaite 1946)."""
    total = variance + more
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = total**2 / (variance**2 / degrees + more**2 / more_degrees)
    return total, np.where(more > 0, np.where(np.isfinite(freedom), freedom, CERTAIN), degrees)


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
