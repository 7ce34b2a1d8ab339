"""From launch values to verdicts of serving: their floors and power, their test, and the one decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from tilewatch.tasks.analyse.comparison.decision import Effects, Mask, Rule, Texts, decide, two_sided
from tilewatch.tasks.analyse.statistics.launch_bootstrap import LaunchTest, launch_test
from tilewatch.tasks.analyse.statistics.limits import ServingLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers
from tilewatch.tasks.analyse.statistics.stats import CERTAIN, Welch, added, tested


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
    SAME an interval within ``same_within`` (see ``decision``). A metric of which more is better is FASTER
    if it grew.
    """
    test = launch_test(pairs.base, pairs.candidate, limits)
    identical, floor, floor_reason = _floors(pairs, test, limits)
    lease = _lease_variance(pairs)
    both = tested(
        test.welch.difference,
        *added(test.welch.error**2, test.welch.degrees, lease, np.nan_to_num(pairs.lease_degrees, nan=1.0)),
    )
    shown = _with_leases(test, both, pairs.between, limits)
    decision = decide(
        Effects(
            difference=both.difference, low=shown.low, high=shown.high, same_low=shown.same_low,
            same_high=shown.same_high, p_value=both.p_value, floor=floor, counts=test.counts,
            variance=(test.variance[0] + test.variance[1]) / 2, lease_variance=lease,
            excluded=pairs.excluded, more_is_better=pairs.more_is_better,
            lease_degrees=np.nan_to_num(pairs.lease_degrees, nan=CERTAIN),
        ),
        rule(limits),
    )  # fmt: skip
    return ServingJudged(
        shown, decision.q_value, decision.verdict, decision.reason, floor, floor_reason, identical,
        _detectable(both, floor, limits), decision.extra,
    )  # fmt: skip


def _with_leases(test: LaunchTest, both: Welch, between: Mask, limits: ServingLimits) -> LaunchTest:
    """Between leases the interval is Student's, with their variance in it; in one lease the bootstrap's."""
    with np.errstate(divide="ignore"):
        ends = [*both.interval(limits.alpha), *both.interval(2 * limits.alpha)]
        low, high, same_low, same_high = (np.log(end) for end in ends)
    return replace(
        test,
        welch=both,
        low=np.where(between, low, test.low),
        high=np.where(between, high, test.high),
        same_low=np.where(between, same_low, test.same_low),
        same_high=np.where(between, same_high, test.same_high),
    )


def rule(limits: ServingLimits) -> Rule:
    """What ``limits`` ask of a verdict, in the words of the one decision."""
    return Rule(
        limits.alpha, limits.power, limits.min_launches, limits.max_launches, limits.same_within, "launches"
    )


def _lease_variance(pairs: LaunchPairs) -> Floats:
    """Variance of a difference between two leases of the same build; NaN between leases without history."""
    return np.where(pairs.between, two_sided(pairs.lease_spread) ** 2, 0.0)


def _floors(pairs: LaunchPairs, test: LaunchTest, limits: ServingLimits) -> tuple[Floats, Floats, Texts]:
    """A/A error, effect floor in logs (NaN where it is not known) and which part of it was the largest."""
    with np.errstate(divide="ignore"):
        parts = 1 / test.counts[0] + 1 / test.counts[1]
        within = np.where(np.isinf(parts), np.nan, pairs.arm_spread * np.sqrt(parts))
    identical = np.where(pairs.between, np.sqrt(_lease_variance(pairs)), within)
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


def _detectable(test: Welch, floor: Floats, limits: ServingLimits) -> Floats:
    """Smallest true log ratio that is decided with the stated power: beyond the floor and beyond chance."""
    degrees = np.fmax(test.degrees, 1.0)
    quantiles = stats.t.ppf(1 - limits.alpha / 2, degrees) + stats.t.ppf(limits.power, degrees)
    # An effect at the floor is beyond it half of the time; the margin above it must hold with the same power.
    above = floor + stats.t.ppf(limits.power, degrees) * test.error
    return np.asarray(np.maximum(quantiles * test.error, above))
