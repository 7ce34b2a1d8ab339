"""Variances that know the other points of their table: few processes say little of their own scatter."""

from __future__ import annotations

import numpy as np
from scipy import special

from tilewatch.tasks.analyse.statistics.limits import ModerationLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats


def moderate(
    variance: Floats, degrees: Floats, limits: ModerationLimits | None = None
) -> tuple[Floats, Floats]:
    """Variances and their degrees of freedom, moderated over the rows of one table (Smyth 2004).

    A scaled inverse chi-square prior is fitted to all rows; each row then has the degrees of freedom of both,
    the prior's at most ``most_prior``: points differ in kind. The moderated variance is never taken below the
    row's own: what is gained is freedom, and a row that is quiet by luck is not taken at its word. Rows
    without a variance stay NaN; with fewer than ``fewest_rows`` variances above 0 nothing is changed.
    """
    limits = limits or ModerationLimits()
    with np.errstate(invalid="ignore"):
        known = (variance > 0) & (degrees > 0)
    if np.count_nonzero(known) < limits.fewest_rows:
        return variance, degrees
    prior_degrees, prior = _fit(variance[known], degrees[known])
    prior_degrees = min(prior_degrees, limits.most_prior)
    if prior_degrees == 0:
        return variance, degrees
    mixed = (prior_degrees * prior + degrees * variance) / (prior_degrees + degrees)
    return np.where(known, np.maximum(variance, mixed), variance), np.where(
        known, degrees + prior_degrees, degrees
    )


def _fit(variance: Floats, degrees: Floats) -> tuple[float, float]:
    """Degrees of freedom and variance of the prior by moments of ln(variance) (Smyth 2004, section 6.2)."""
    half = degrees / 2
    logs = np.log(variance) - special.digamma(half) + np.log(half)
    centre = float(logs.mean())
    excess = float(logs.var(ddof=1) - special.polygamma(1, half).mean())
    if excess <= 0:
        return np.inf, float(np.exp(centre))
    prior = 2 * _inverse_trigamma(excess)
    return prior, float(np.exp(centre + special.digamma(prior / 2) - np.log(prior / 2)))


def _inverse_trigamma(value: float) -> float:
    """x with trigamma(x) = value, by Newton's method on 1/trigamma (Smyth 2004, appendix)."""
    found = 0.5 + 1 / value
    for _ in range(50):
        at = float(special.polygamma(1, found))
        step = at * (1 - at / value) / float(special.polygamma(2, found))
        found += step
        if -step / found < 1e-8:
            break
    return found
