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
from tilewatch.tasks.analyse.statistics.stats import upper_spread


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
    lease = _lease_variance(pairs, limits)
    error = np.sqrt(test.welch.error**2 + lease)
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.where(test.welch.difference == 0, 0.0, test.welch.difference / error)
    p_value = np.where(
        np.isnan(test.welch.p_value), np.nan, 2 * stats.t.sf(np.abs(t), np.fmax(test.welch.degrees, 1))
    )
    wide, narrow = (
        np.where(pairs.between, stats.norm.ppf(1 - tail) * np.sqrt(lease), 0)
        for tail in (limits.alpha / 2, limits.alpha)
    )
    shown = replace(
        test, low=test.low - wide, high=test.high + wide,
        same_low=test.same_low - narrow, same_high=test.same_high + narrow,
    )  # fmt: skip
    decision = decide(
        Effects(
            difference=test.welch.difference, low=shown.low, high=shown.high, same_low=shown.same_low,
            same_high=shown.same_high, p_value=p_value, floor=floor, counts=test.counts,
            variance=(test.variance[0] + test.variance[1]) / 2, lease_variance=lease,
            excluded=pairs.excluded, more_is_better=pairs.more_is_better,
        ),
        rule(limits),
    )  # fmt: skip
    return ServingJudged(
        shown, decision.q_value, decision.verdict, decision.reason, floor, floor_reason, identical,
        _detectable(test, floor, lease, limits), decision.extra,
    )  # fmt: skip


def rule(limits: ServingLimits) -> Rule:
    """What ``limits`` ask of a verdict, in the words of the one decision."""
    return Rule(
        limits.alpha, limits.power, limits.min_launches, limits.max_launches, limits.same_within, "launches"
    )


def _lease_variance(pairs: LaunchPairs, limits: ServingLimits) -> Floats:
    """Variance of a difference between two leases of the same build; NaN between leases without history."""
    bound = upper_spread(pairs.lease_spread, pairs.lease_degrees, limits.spread_confidence)
    return np.where(pairs.between, two_sided(bound) ** 2, 0.0)


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
