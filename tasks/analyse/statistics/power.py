"""What more replicates would decide: the chance that a pair gets a verdict, before they are measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers
from tilewatch.tasks.analyse.statistics.stats import added

_ROWS_AT_ONCE = 20_000
_LEAST_SPREAD = 1e-12


@dataclass(frozen=True)
class Outlook:
    """One row a pair, in logs: what is known of it now and what a verdict asks for."""

    difference: Floats
    variance: Floats
    """Of one replicate: the mean of the two sides."""
    lease_variance: Floats
    """Of the difference, which no further replicate of the same leases narrows."""
    lease_degrees: Floats
    """Degrees of freedom that it is known with."""
    count: Integers
    """Replicates a side now (the fewer)."""
    floor: Floats
    """A difference must be larger than this."""
    same_within: Floats
    """Equality is an interval within ± this."""


def chance_to_decide(known: Outlook, sizes: Integers, *, alpha: float, reject: float) -> Floats:
    """Chance [rows, sizes] that so many replicates a side end in a verdict, whatever the verdict is.

    The predictive probability with a flat prior (Spiegelhalter, Freedman and Blackburn 1986): the true
    difference is as uncertain as its estimate, so a chance of 80 % comes true in 80 % of the rows that get
    it. ``reject`` is the p value that a difference must reach in its table (Benjamini-Hochberg), ``alpha``
    the level of the two one-sided tests of equality. The smaller of two chances: replicates added to those
    there are, and all of them measured afresh in new leases. NaN variances give NaN.
    """
    chance = np.full((len(known.difference), len(sizes)), np.nan)
    for start in range(0, len(chance), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        chance[rows] = _chance(known, rows, sizes, alpha, reject)
    return chance


def _chance(known: Outlook, rows: slice, sizes: Integers, alpha: float, reject: float) -> Floats:
    at, now = known.difference[rows, None], np.maximum(known.count[rows, None], 2)
    lease = known.lease_variance[rows, None]
    before, after = 2 * known.variance[rows, None] / now, 2 * known.variance[rows, None] / sizes
    total, degrees = added(after, (2 * sizes - 2).astype(np.float64), lease, known.lease_degrees[rows, None])
    error = np.sqrt(total)
    beyond = np.maximum(known.floor[rows, None], stats.t.ppf(1 - reject / 2, degrees) * error)
    within = known.same_within[rows, None] - stats.t.ppf(1 - alpha, degrees) * error
    continued = np.sqrt(np.maximum(before - after, 0))
    afresh = np.sqrt(before + after + 2 * lease)
    chances = [
        _falls(at, np.maximum(spread, _LEAST_SPREAD), beyond, within) for spread in (continued, afresh)
    ]
    return np.asarray(np.minimum(*chances))


def _falls(at: Floats, spread: Floats, beyond: Floats, within: Floats) -> Floats:
    """P(|X| > beyond or |X| < within) for X ~ N(at, spread²)."""
    differs = stats.norm.sf((beyond - at) / spread) + stats.norm.cdf((-beyond - at) / spread)
    same = stats.norm.cdf((within - at) / spread) - stats.norm.cdf((-within - at) / spread)
    return np.asarray(np.minimum(differs + np.where(within > 0, same, 0.0), 1.0))


def replicates_needed(chance: Floats, sizes: Integers, power: float) -> Integers:
    """The smallest of ``sizes`` whose chance reaches ``power``, a row; 0 if none does or nothing is known."""
    with np.errstate(invalid="ignore"):
        enough = chance >= power
    return np.where(enough.any(axis=1), sizes[enough.argmax(axis=1)], 0).astype(np.int64)
