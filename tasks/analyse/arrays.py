"""The detectors on plain arrays: for a notebook, or for data that never was a tilewatch capture.

``change_points_of`` and ``alerts_of`` look along time, ``cliffs_of`` along a parameter axis, ``fence_of`` at
one more build, ``verdicts_of`` at two builds. They check what they are given and call the functions that the
tables go through; each raises AnalysisError for values that it cannot judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tilewatch.tasks.analyse.cliffs.cliffs import Cliff, find_cliffs
from tilewatch.tasks.analyse.cliffs.curves import Curves
from tilewatch.tasks.analyse.comparison.verdicts import Judged, Pairs, judge
from tilewatch.tasks.analyse.series.change_points import change_points
from tilewatch.tasks.analyse.series.fence import Fence, fence
from tilewatch.tasks.analyse.series.t_scan import t_changes
from tilewatch.tasks.analyse.statistics.limits import (
    ChangePointLimits,
    CliffLimits,
    ComparisonLimits,
    SeriesLimits,
    TScanLimits,
)
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers, moments
from tilewatch.tasks.analyse.statistics.robust import hold_stalls, widened
from tilewatch.tasks.analyse.tables import AnalysisError

Numbers = Sequence[float] | npt.NDArray[np.generic]


def change_points_of(
    values: Numbers, *, window: int = 50, max_p_value: float = 0.001, min_magnitude: float = 0.0
) -> list[int]:
    """E-divisive change points of one series in time order: index of the first value after each change.

    Parameters as in Hunter and Otava: ``window`` (values, at least 2), largest ``max_p_value`` kept, and
    ``min_magnitude`` as a relative step. Any finite values, also 0 and negative ones.
    """
    if window < 2 or not 0 < max_p_value <= 1 or min_magnitude < 0:
        raise AnalysisError(
            f"window {window} must be at least 2, max_p_value {max_p_value} in (0, 1], min_magnitude "
            f"{min_magnitude} not negative"
        )
    limits = ChangePointLimits(window, max_p_value, min_magnitude)
    return change_points([_scaled(_finite("values", values))], limits)[0]


def alerts_of(values: Numbers, limits: TScanLimits | None = None) -> list[int]:
    """Perfherder's t scan of one series in time order: positions of its alerts. Any finite values."""
    return t_changes([_scaled(_finite("values", values))], limits)[0]


def cliffs_of(
    axis: Numbers,
    values: Numbers,
    curve: Sequence[str] | Numbers | None = None,
    *,
    limits: CliffLimits | None = None,
) -> list[Cliff]:
    """Cliffs along one axis, or along several curves at once, in any order of the rows.

    ``axis`` holds whole numbers above 0, ``values`` durations in ns above 0 (floors are absolute), ``curve``
    the curve of each row. ``Cliff.low`` is the given row before the step, ``kind`` step, comb, spike, drop,
    or unrefined where no third point tells. An axis value may occur once a curve.
    """
    value, place = _positive("values", values), _positive("axis", axis)
    names = np.zeros(len(value), dtype=np.int64) if curve is None else np.asarray(curve)
    if not len(value) == len(place) == len(names):
        raise AnalysisError(f"{len(place)} axis values, {len(value)} values, {len(names)} curve names")
    if np.any(place != np.rint(place)):
        raise AnalysisError(f"axis: {place[place != np.rint(place)][0]} is no whole number")
    _, index = np.unique(names, return_inverse=True)
    order = np.lexsort((place, index))
    sorted_index, sorted_axis = index[order].astype(np.int64), place[order].astype(np.int64)
    twice = np.flatnonzero((np.diff(sorted_index) == 0) & (np.diff(sorted_axis) == 0))
    if len(twice):
        first = order[twice[0]]
        raise AnalysisError(f"curve {names[first]}: axis value {place[first]:g} occurs more than once")
    unknown = np.full(len(value), np.nan)
    sorted_curves = Curves(pa.table({}), sorted_index, sorted_axis, value[order], unknown)
    return [replace(found, low=int(order[found.low])) for found in find_cliffs(sorted_curves, limits)]


def fence_of(
    before: Numbers,
    after: Numbers,
    spread_log: Numbers | None = None,
    *,
    leases: int = 2,
    limits: SeriesLimits | None = None,
) -> Fence:
    """Fence of one more build for the points ``before[i]`` → ``after[i]``; ``outside`` says which left it.

    ``spread_log`` is each point's between-lease A/A spread (standard deviation of ln value over ``leases``).
    Without it the conservative floor for unknown spread holds.
    """
    old, new = _positive("before", before), _positive("after", after)
    known = np.full(len(old), np.nan) if spread_log is None else _finite("spread_log", spread_log)
    if not len(old) == len(new) == len(known):
        raise AnalysisError(f"{len(old)} values before, {len(new)} after, {len(known)} spreads")
    pairs = np.stack([old, new], axis=1).ravel()
    first = np.repeat(np.arange(len(old), dtype=np.int64) * 2, 2)
    degrees = np.full(len(pairs), float(leases - 1))
    both = fence(pairs, first, np.repeat(known, 2), degrees, limits)
    return Fence(both.delta_log[1::2], both.fence_log[1::2], both.reason[1::2])


def verdicts_of(
    base: npt.ArrayLike,
    candidate: npt.ArrayLike,
    *,
    base_method: str = "",
    candidate_method: str = "",
    spread_log: Numbers | None = None,
    leases: int = 2,
    between_leases: bool = False,
    limits: ComparisonLimits | None = None,
) -> Judged:
    """Verdict of every point; ``base`` and ``candidate`` are process values in ns, [points, processes].

    NaN stands for a process without a value; one value a point is UNDECIDED. Different methods are refused:
    a moved timing boundary looks like a regression. ``spread_log`` and ``leases`` as in ``fence_of``.
    """
    if base_method != candidate_method:
        raise AnalysisError(f"refused: the method differs: {base_method!r} -> {candidate_method!r}")
    sides = _process_values("base", base), _process_values("candidate", candidate)
    if len(sides[0]) != len(sides[1]):
        raise AnalysisError(f"{len(sides[0])} points in the baseline, {len(sides[1])} in the candidate")
    count = len(sides[0])
    spread = np.full(count, np.nan) if spread_log is None else _finite("spread_log", spread_log)
    old, new = _statistics(sides[0]), _statistics(sides[1])
    unknown = np.full(count, np.nan)
    pairs = Pairs(
        processes=(old.counts, new.counts),
        mean_log=(old.mean_log, new.mean_log),
        variance_log=(old.variance_log, new.variance_log),
        freedom=(old.degrees, new.degrees),
        call_ns=(np.exp(old.mean_log), np.exp(new.mean_log)),
        between=np.full(count, between_leases),
        spread=spread,
        degrees=np.where(np.isnan(spread), np.nan, leases - 1.0),
        own=unknown,
        own_degrees=unknown,
        excluded=np.minimum(old.counts, new.counts) == 0,
    )
    return judge(pairs, limits or ComparisonLimits())


@dataclass(frozen=True)
class _Statistics:
    counts: Integers
    mean_log: Floats
    variance_log: Floats
    degrees: Floats


def _process_values(name: str, given: npt.ArrayLike) -> Floats:
    values = np.asarray(given, dtype=np.float64)
    if values.ndim != 2:
        raise AnalysisError(f"{name}: [points, processes] is needed, not {values.ndim} dimensions")
    if np.any(np.isinf(values) | (values <= 0)):
        raise AnalysisError(f"{name}: process values must be above 0 and finite; NaN where there is none")
    return values


def _statistics(values: Floats) -> _Statistics:
    """Robust centre of the logs of each row, its variance and their freedom; NaN where too few values."""
    rows = np.sort(np.log(values), axis=1)
    count = np.count_nonzero(~np.isnan(rows), axis=1).astype(np.int64)
    there = np.flatnonzero(count)
    flat = rows[~np.isnan(rows)]
    starts = (np.cumsum(count) - count)[there]
    held = hold_stalls(flat, starts, np.zeros(len(there), dtype=np.int64))
    mean, variance, degrees = np.full(len(rows), np.nan), np.full(len(rows), np.nan), np.zeros(len(rows))
    mean[there], own = moments(held.logs, starts, count[there])
    variance[there] = widened(own, count[there], held.kept)
    degrees[there] = np.where(count[there] > 1, np.maximum(held.kept - 1, 1), 0)
    return _Statistics(count, mean, variance, degrees)


def _finite(name: str, given: Numbers) -> Floats:
    values = np.asarray(given, dtype=np.float64)
    if values.ndim != 1:
        raise AnalysisError(f"{name}: one dimension is needed, not {values.ndim}")
    if len(bad := np.flatnonzero(~np.isfinite(values))):
        raise AnalysisError(f"{name}: {len(bad)} of {len(values)} are not finite, the first at {bad[0]}")
    return values


def _scaled(values: Floats) -> Floats:
    """Values by a power of two, which changes no digit, where squares would leave the range of floats."""
    _, exponent = np.frexp(np.max(np.abs(values), initial=0.0))
    return np.ldexp(values, -exponent) if abs(exponent) > 400 else values


def _positive(name: str, given: Numbers) -> Floats:
    values = _finite(name, given)
    if len(bad := np.flatnonzero(values <= 0)):
        raise AnalysisError(f"{name}: {len(bad)} of {len(values)} are not above 0, the first at {bad[0]}")
    return values
