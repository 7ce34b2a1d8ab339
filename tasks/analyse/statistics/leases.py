"""What two leases of one build differ by, apart from the scatter of the processes measured in them.

The log value of a point in a lease is the sum of the point's own level, a shift that all points of the lease
share (the clock, the neighbours, the temperature), what is left between this lease and this point, and the
scatter of the processes divided by their number. The scatter of lease values is therefore no measure of
leases until the last part is taken out of it. The shared shift is by far the largest part between real
leases; anchor kernels measure it, and only what is left remains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy import stats

from tilewatch.tasks.analyse.statistics.limits import SpreadLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers

GROUP = ("device", "method_hash")
"""Leases are compared within one device and method; every experiment and arm of them counts."""

_POINT = ("build_id", "experiment", "arm", "point_id")
_MEDIAN_COSTS = np.pi / 2
"""Variance of a median of normal values, in variances of their mean."""


@dataclass(frozen=True)
class LeaseComponents:
    """Standard deviations in logs of one lease against another of the same build, with degrees of freedom."""

    lease_log: float
    """With the shift that all points share."""
    lease_degrees: float
    own_log: float
    """Without it: what is left when the shift is divided out. NaN with too few points to know the shift."""
    own_degrees: float


Components = Mapping[tuple[str, str], LeaseComponents]


def lease_components(values: pa.Table, limits: SpreadLimits | None = None) -> Components:
    """Lease components by (device, method) of lease values.

    ``values`` has one row a (build, device, method, experiment, arm, point, lease): ``log_value``, the log of
    the median over its ``processes``, and ``scatter``, the variance of one process (null for one process).
    """
    limits = limits or SpreadLimits()
    found = {}
    for key in sorted(set(zip(*(values[n].to_pylist() for n in GROUP), strict=True))):
        mask = np.logical_and(*(_column(values, n) == k for n, k in zip(GROUP, key, strict=True)))
        one = _components(values.filter(pa.array(mask)), limits)
        if one is not None:
            found[key] = one
    return found


def _components(values: pa.Table, limits: SpreadLimits) -> LeaseComponents | None:
    point, lease = _codes(values, _POINT), _codes(values, ("build_id", "lease_id"))
    leases = np.bincount(point)[point]
    used = leases > 1
    if not used.any():
        return None
    value = np.asarray(values["log_value"].to_numpy(), dtype=np.float64)
    away = (value - (np.bincount(point, value) / np.bincount(point))[point])[used]
    # Residuals of L leases scatter by (L − 1)/L of the variance.
    away *= np.sqrt(leases[used] / (leases[used] - 1))
    of, noise = lease[used], _noise(values, used)
    shift, members = _medians(of, away)
    builds = len(np.unique(_codes(values, ("build_id",))[used]))
    degrees = float(max(len(np.unique(of)) - builds, 1))
    total = max(float(np.mean(away**2)) - noise, 0.0)
    if np.min(members) < limits.fewest_points:
        return LeaseComponents(float(np.sqrt(total)), degrees, np.nan, np.nan)
    left = away - shift[np.searchsorted(np.unique(of), of)]
    own = max(_robust_variance(left) - noise, 0.0)
    shared = float(np.mean(shift**2))
    arms = len(np.unique(_codes(values, ("experiment", "arm"))[used]))
    return LeaseComponents(float(np.sqrt(shared + own)), degrees, float(np.sqrt(own)), degrees * arms)


def _noise(values: pa.Table, used: np.ndarray) -> float:
    """Variance that the scatter of the processes gives a median of them: typical, so that no stall counts."""
    scatter = _column(values, "scatter").astype(np.float64)[used]
    processes = _column(values, "processes").astype(np.float64)[used]
    known = np.isfinite(scatter) & (processes > 1)
    if not known.any():
        return 0.0
    free = processes[known] - 1
    unbiased = scatter[known] * free / stats.chi2.ppf(0.5, free)
    return float(np.median(unbiased * _MEDIAN_COSTS / processes[known]))


def _medians(group: Integers, values: Floats) -> tuple[Floats, Integers]:
    """Median of the values of each group, by rising group, and how many there are."""
    names = np.unique(group)
    return (
        np.array([np.median(values[group == name]) for name in names]),
        np.array([np.count_nonzero(group == name) for name in names]),
    )


def _robust_variance(values: Floats) -> float:
    """By the median absolute deviation: a stalled process is noise of that process, not of the lease."""
    return float((1.4826 * np.median(np.abs(values))) ** 2)


def _column(values: pa.Table, name: str) -> np.ndarray:
    return np.asarray(values[name].to_numpy(zero_copy_only=False))


def _codes(values: pa.Table, names: tuple[str, ...]) -> Integers:
    """An integer a row, equal where all columns are."""
    codes = np.zeros(values.num_rows, dtype=np.int64)
    for name in names:
        one = values[name].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
        codes = np.unique(codes * (one.max(initial=0) + 1) + one, return_inverse=True)[1]
    return codes
