"""From process statistics to verdicts of operators: their effect floors, their test, and the one decision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewatch.tasks.analyse.comparison.decision import Effects, Mask, Rule, Texts, decide, two_sided
from tilewatch.tasks.analyse.statistics.limits import ComparisonLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers
from tilewatch.tasks.analyse.statistics.stats import Welch, upper_spread, welch


@dataclass(frozen=True)
class Pairs:
    """One row a pair: what both sides measured. Statistics are NaN (counts 0) where a side has no value."""

    processes: tuple[Integers, Integers]
    mean_log: tuple[Floats, Floats]
    variance_log: tuple[Floats, Floats]
    median_ns: tuple[Floats, Floats]
    between: Mask
    """True where the two sides were measured in different leases."""
    spread: Floats
    """Own between-lease A/A spread in logs (the larger side's); NaN without history."""
    degrees: Floats
    """Its degrees of freedom; NaN without history."""
    excluded: Mask
    """Rows that get no statistics: refused, missing, nothing to time."""
    dies: tuple[Integers | int, Integers | int] = (1, 1)
    """Devices behind each side's processes, whose differences are taken out."""


@dataclass(frozen=True)
class Judged:
    """One row a pair, aligned with Pairs. ``extra_processes`` is −1 where none are asked for."""

    verdict: Texts
    reason: Texts
    test: Welch
    q_value: Floats
    floor_log: Floats
    floor_reason: Texts
    extra_processes: Integers


def judge(pairs: Pairs, limits: ComparisonLimits, anchor_drift: float = 0.0) -> Judged:
    """Verdicts of all pairs, false discovery rate controlled over those that have enough processes.

    ``anchor_drift`` is the absolute log ratio of the anchor kernels between the two leases; the floor of
    pairs between leases is at least that and the relative floor. Excluded rows come back UNDECIDED with an
    empty reason.
    """
    floor, floor_reason = floors(pairs, limits, anchor_drift)
    test = _test(pairs, limits)
    decision = decide(_effects(pairs, test, floor, limits), rule(limits))
    note = "; between-lease spread unknown: no archived A/A runs of this point"
    decision.reason[pairs.between & np.isnan(pairs.spread) & ~pairs.excluded] += note
    return Judged(
        decision.verdict, decision.reason, test, decision.q_value, floor, floor_reason, decision.extra
    )


def rule(limits: ComparisonLimits) -> Rule:
    """What ``limits`` ask of a verdict, in the words of the one decision."""
    return Rule(
        limits.alpha,
        limits.power,
        limits.min_processes,
        limits.max_processes,
        limits.same_within,
        "processes",
    )


def _effects(pairs: Pairs, test: Welch, floor: Floats, limits: ComparisonLimits) -> Effects:
    low, high = (np.log(end) for end in test.interval(limits.alpha))
    same_low, same_high = (np.log(end) for end in test.interval(2 * limits.alpha))
    return Effects(
        difference=test.difference, low=low, high=high, same_low=same_low, same_high=same_high,
        p_value=test.p_value, floor=floor, counts=pairs.processes,
        variance=(pairs.variance_log[0] + pairs.variance_log[1]) / 2,
        lease_variance=_lease_variance(pairs, limits), excluded=pairs.excluded,
    )  # fmt: skip


def floors(pairs: Pairs, limits: ComparisonLimits, anchor_drift: float) -> tuple[Floats, Texts]:
    """Effect floor of each pair in logs, and which of the floors was the largest."""
    rows = len(pairs.between)
    known = ~np.isnan(pairs.spread)
    # In one lease the arms alternate and share its drift: ABBA order cancels it, and no floor is needed.
    identical = np.sqrt(_lease_variance(pairs, limits))
    with np.errstate(invalid="ignore", divide="ignore"):
        absolute = np.log1p(limits.absolute_floor_ns / pairs.median_ns[0])
    candidates = np.stack(
        [
            np.full(rows, np.log1p(limits.relative_floor)),
            np.where(np.isnan(absolute), 0.0, absolute),
            limits.spread_multiple * identical,
            # What all share is drift; only what goes beyond it by the floor can be the candidate's own.
            np.where(pairs.between, anchor_drift + np.log1p(limits.relative_floor), 0.0),
        ]
    )
    multiple = f"{limits.spread_multiple:g} × A/A between leases"
    history = np.where(known, multiple, "between-lease spread unknown: conservative floor")
    names = np.stack(
        [
            np.full(rows, f"{limits.relative_floor:.0%} relative floor"),
            np.full(rows, f"{limits.absolute_floor_ns:g} ns absolute floor"),
            history,
            np.full(rows, "drift of the anchor kernels between the leases"),
        ]
    )
    largest = candidates.argmax(axis=0)
    return candidates.max(axis=0), names[largest, np.arange(rows)].astype(object)


def _lease_variance(pairs: Pairs, limits: ComparisonLimits) -> Floats:
    """Variance of the difference of two identical leases; 0 in one lease."""
    unknown = np.log1p(limits.unknown_lease_floor) / limits.spread_multiple
    bound = upper_spread(pairs.spread, np.maximum(pairs.degrees, 1.0), limits.spread_confidence)
    identical = np.where(np.isnan(pairs.spread), unknown, two_sided(bound))
    return np.where(pairs.between, identical**2, 0.0)


def _test(pairs: Pairs, limits: ComparisonLimits) -> Welch:
    """Welch with two variances processes cannot show: the timer's rounding and, between leases, theirs."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rounding = [limits.timer_tick_ns**2 / 12 / value**2 for value in pairs.median_ns]
    variance = (
        np.fmax(pairs.variance_log[0], np.where(pairs.processes[0] > pairs.dies[0], rounding[0], np.nan)),
        np.fmax(pairs.variance_log[1], np.where(pairs.processes[1] > pairs.dies[1], rounding[1], np.nan)),
    )
    return welch(pairs.mean_log, variance, pairs.processes, _lease_variance(pairs, limits), pairs.dies)
