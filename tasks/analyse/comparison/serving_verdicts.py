"""From launch values to verdicts of serving: floors, power, decision and reason, launches still needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from tilewatch.tasks.analyse.statistics.launch_bootstrap import LaunchTest, launch_test
from tilewatch.tasks.analyse.statistics.limits import ServingLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers
from tilewatch.tasks.analyse.statistics.stats import benjamini_hochberg, needed_processes, upper_spread

Texts = npt.NDArray[np.object_]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LaunchPairs:
    """One row a (pair, load, metric); lists of launch values are empty where a side has none."""

    base: Sequence[Sequence[float]]
    candidate: Sequence[Sequence[float]]
    more_is_better: Mask
    between: Mask
    """True where the sides were measured in different leases."""
    arm_spread: Floats
    """Standard deviation of ln(launch value), pooled over all arms of the load and metric; NaN unknown."""
    lease_spread: Floats
    """Between-lease standard deviation of ln(arm value); NaN without history."""
    lease_degrees: Floats
    excluded: Mask
    """Rows that get no statistics: refused or missing."""


@dataclass(frozen=True)
class ServingJudged:
    """One row a pair, aligned with LaunchPairs; ratios are logs, ``extra`` is −1 where none are asked for."""

    test: LaunchTest
    q_value: Floats
    verdict: Texts
    reason: Texts
    floor: Floats
    floor_reason: Texts
    identical: Floats
    """Standard error of two identical arms (A/A)."""
    detectable: Floats
    extra: Integers


def judge_serving(pairs: LaunchPairs, limits: ServingLimits) -> ServingJudged:
    """Verdicts of all pairs, the false discovery rate controlled over those with enough launches.

    FASTER or SLOWER needs q ≤ α, an interval without 1 and an effect beyond the floor max(3 × A/A, 0.5 %);
    SAME an interval within the floor. A metric of which more is better is FASTER where it grew.
    """
    test = launch_test(pairs.base, pairs.candidate, limits)
    identical, floor, floor_reason = _floors(pairs, test, limits)
    fewest = np.minimum(*test.counts)
    enough = (fewest >= limits.min_launches) & ~pairs.excluded
    error = np.sqrt(test.welch.error**2 + _lease_variance(pairs, limits))
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.where(test.welch.difference == 0, 0.0, test.welch.difference / error)
    p_value = np.where(
        np.isnan(test.welch.p_value), np.nan, 2 * stats.t.sf(np.abs(t), np.fmax(test.welch.degrees, 1))
    )
    q_value = benjamini_hochberg(np.where(enough, p_value, np.nan))
    widened = np.where(
        pairs.between, stats.norm.ppf(1 - limits.alpha / 2) * np.sqrt(_lease_variance(pairs, limits)), 0
    )
    low, high = test.low - widened, test.high + widened
    difference = test.welch.difference
    with np.errstate(invalid="ignore"):
        beyond = (low > 0) | (high < 0)
        differs = enough & (q_value <= limits.alpha) & beyond & (np.abs(difference) > floor)
        same = enough & ~differs & (low >= -floor) & (high <= floor)
    better = np.where(pairs.more_is_better, difference > 0, difference < 0)
    verdict = np.select([differs & better, differs, same], ["FASTER", "SLOWER", "SAME"], "UNDECIDED")
    undecided = ~(differs | same) & ~pairs.excluded
    detectable = _detectable(test, floor, _lease_variance(pairs, limits), limits)
    extra = _extra(pairs, test, floor, undecided, limits)
    shown = LaunchTest(test.welch, low, high, test.counts, test.variance)
    reason = _reasons(limits, differs, same, fewest, np.isnan(floor), extra)
    return ServingJudged(
        shown, q_value, verdict.astype(object), reason, floor, floor_reason, identical, detectable, extra
    )


def _lease_variance(pairs: LaunchPairs, limits: ServingLimits) -> Floats:
    """Variance of a difference between two leases of the same build; NaN between leases without history."""
    bound = upper_spread(pairs.lease_spread, pairs.lease_degrees, limits.spread_confidence)
    return np.where(pairs.between, 2 * bound**2, 0.0)


def _floors(pairs: LaunchPairs, test: LaunchTest, limits: ServingLimits) -> tuple[Floats, Floats, Texts]:
    """A/A error, effect floor in logs (NaN where it is not known) and which part of it was the largest."""
    with np.errstate(divide="ignore"):
        parts = 1 / test.counts[0] + 1 / test.counts[1]
        within = np.where(np.isinf(parts), np.nan, pairs.arm_spread * np.sqrt(parts))
    identical = np.where(pairs.between, np.sqrt(_lease_variance(pairs, limits)), within)
    relative = np.log1p(limits.relative_floor)
    floor = np.maximum(relative, limits.spread_multiple * identical)
    source = np.where(pairs.between, "between leases", "between launches of one arm")
    words = np.where(
        limits.spread_multiple * identical > relative,
        [f"{limits.spread_multiple:g} × A/A {where}" for where in source],
        f"{limits.relative_floor:.1%} effect floor of serving",
    ).astype(object)
    words[np.isnan(floor)] = "unknown"
    return identical, floor, words


def _detectable(test: LaunchTest, floor: Floats, lease: Floats, limits: ServingLimits) -> Floats:
    """Smallest true log ratio that is decided with the stated power: beyond the floor and beyond chance."""
    degrees = np.fmax(test.welch.degrees, 1.0)
    quantiles = stats.t.ppf(1 - limits.alpha / 2, degrees) + stats.t.ppf(limits.power, degrees)
    error = np.sqrt(test.welch.error**2 + lease)
    # An effect at the floor is beyond it half of the time; the margin above it must hold with the same power.
    return np.asarray(np.maximum(quantiles * error, floor + stats.t.ppf(limits.power, degrees) * error))


def _extra(
    pairs: LaunchPairs, test: LaunchTest, floor: Floats, undecided: Mask, limits: ServingLimits
) -> Integers:
    """Launches a side still to measure: up to the minimum first, then by power, within the cap."""
    extra = np.full(len(floor), -1, dtype=np.int64)
    rows = np.flatnonzero(undecided)
    fewest = np.minimum(*test.counts)[rows]
    size = np.abs(test.welch.difference[rows])
    margin = np.where(size <= floor[rows], floor[rows] - size, size)
    needed = needed_processes(
        (test.variance[0][rows] + test.variance[1][rows]) / 2, margin, _lease_variance(pairs, limits)[rows],
        alpha=limits.alpha, power=limits.power, cap=limits.max_launches,
    )  # fmt: skip
    target = np.where(fewest < limits.min_launches, limits.min_launches, np.maximum(needed, fewest + 1))
    extra[rows] = np.maximum(np.minimum(target, limits.max_launches) - fewest, 0)
    return extra


def _reasons(
    limits: ServingLimits, differs: Mask, same: Mask, fewest: Integers, unknown: Mask, extra: Integers
) -> Texts:
    few = fewest < limits.min_launches
    return np.select(
        [differs, same, fewest < 2, few, unknown, extra > 0],
        [
            "the difference is beyond chance and beyond the floor",
            "the interval lies within the floor",
            "a single launch says nothing about chance",
            f"fewer than {limits.min_launches} launches a side",
            "measured in different leases, and no archived A/A runs say how far leases differ",
            "neither a difference nor equality within the floor is shown; more launches may decide",
        ],
        "not decided: the cap of launches is reached",
    ).astype(object)
