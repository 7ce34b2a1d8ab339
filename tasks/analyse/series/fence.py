"""The fence over builds: is this build's value farther from the last one than its recent deltas allow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewatch.tasks.analyse.statistics.limits import ComparisonLimits, SeriesLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers
from tilewatch.tasks.analyse.statistics.stats import upper_spread

_ROWS_AT_ONCE = 50_000
REASONS = ("deltas of earlier builds", "between-lease A/A spread", "relative floor", "spread unknown")
Texts = npt.NDArray[np.object_]


@dataclass(frozen=True)
class Fence:
    """One row a value of a flat series: log delta to the value before it, and the fence around that."""

    delta_log: Floats
    """NaN at the first value of a segment."""
    fence_log: Floats
    reason: Texts

    @property
    def outside(self) -> npt.NDArray[np.bool_]:
        """True where the delta leaves the fence."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.abs(self.delta_log) > self.fence_log)


def fence(
    values: Floats, first: Integers, spread: Floats, degrees: Floats, limits: SeriesLimits | None = None
) -> Fence:
    """Fence of each value of flat series; ``first`` is, for each value, the row where its segment starts.

    The largest of: third quartile plus ``fence_multiple`` interquartile ranges of up to ``fence_deltas``
    absolute log deltas before it (from ``min_deltas`` on); ``spread_multiple`` own between-lease A/A spreads
    (upper bound; ``spread`` and ``degrees`` are NaN where there is none); the relative floor. With neither
    deltas nor spread the conservative floor of comparisons between leases without history.
    """
    limits, comparison = limits or SeriesLimits(), ComparisonLimits()
    logs = np.log(values)
    delta = np.diff(logs, prepend=np.nan)
    rows = np.arange(len(values))
    delta[first == rows] = np.nan
    by_deltas = _by_deltas(np.abs(delta), rows - first, limits)
    bound = upper_spread(spread, np.maximum(degrees, 1.0), limits.spread_confidence)
    by_spread = limits.spread_multiple * np.asarray(bound)
    unknown = np.isnan(by_deltas) & np.isnan(by_spread)
    floor = np.full(len(values), np.log1p(limits.relative_floor))
    unknown_floor = np.where(unknown, np.log1p(comparison.unknown_lease_floor), 0.0)
    candidates = np.stack([np.nan_to_num(by_deltas), np.nan_to_num(by_spread), floor, unknown_floor])
    reason = np.array(REASONS, dtype=object)[candidates.argmax(axis=0)]
    return Fence(delta, candidates.max(axis=0), reason)


def _by_deltas(size: Floats, age: Integers, limits: SeriesLimits) -> Floats:
    """Q3 + multiple × IQR of the deltas before each value, NaN where too few; ``age``: place there."""
    result = np.full(len(size), np.nan)
    padded = np.concatenate([np.full(limits.fence_deltas, np.nan), size])
    # The first value of a segment has no delta, so a value of age a has a - 1 deltas before it.
    count = np.minimum(age - 1, limits.fence_deltas)
    wanted = np.flatnonzero(count >= limits.min_deltas)
    offsets = np.arange(limits.fence_deltas)
    for start in range(0, len(wanted), _ROWS_AT_ONCE):
        some = wanted[start : start + _ROWS_AT_ONCE]
        window = padded[some[:, None] + offsets]
        recent = offsets >= limits.fence_deltas - count[some][:, None]
        ordered = np.sort(np.where(recent, window, np.inf), axis=1)
        low, high = (_quantile(ordered, count[some], q) for q in (0.25, 0.75))
        result[some] = high + limits.fence_multiple * (high - low)
    return result


def _quantile(ordered: Floats, count: Integers, q: float) -> Floats:
    """Linear quantile of the first ``count`` values of each sorted row."""
    place = (count - 1) * q
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, count - 1)
    rows = np.arange(len(ordered))
    return np.asarray(ordered[rows, low] + (place - low) * (ordered[rows, high] - ordered[rows, low]))
