"""From process statistics to verdicts of operators: their effect floors, their test, and the one decision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewatch.tasks.analyse.comparison.anchors import Drift, drift_of
from tilewatch.tasks.analyse.comparison.decision import Effects, Mask, Rule, Texts, decide, two_sided
from tilewatch.tasks.analyse.statistics.limits import ComparisonLimits
from tilewatch.tasks.analyse.statistics.moderation import moderate
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers
from tilewatch.tasks.analyse.statistics.stats import CERTAIN, Welch, added, tested, welch


@dataclass(frozen=True)
class Pairs:
    """One row a pair: what both sides measured. Statistics are NaN (counts 0) where a side has no value."""

    processes: tuple[Integers, Integers]
    mean_log: tuple[Floats, Floats]
    """Robust centre of the logs of the process values."""
    variance_log: tuple[Floats, Floats]
    """Variance of one process, with ``freedom`` degrees of freedom."""
    freedom: tuple[Floats, Floats]
    call_ns: tuple[Floats, Floats]
    """Typical time of what is timed: the absolute floor and the timer's rounding are held against it."""
    between: Mask
    """True where the two sides were measured in different leases."""
    spread: Floats
    """A/A spread in logs of one lease against others (the larger side's); NaN without history."""
    degrees: Floats
    """Its degrees of freedom; NaN without history."""
    own: Floats
    """What is left of it when the shift that all points of a lease share is divided out; NaN unknown."""
    own_degrees: Floats
    excluded: Mask
    """Rows that get no statistics: refused, missing, nothing to time."""


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
    variance: Floats
    """Of the difference, by processes alone: what a mean over rows may divide by their number."""
    variance_degrees: Floats
    lease: Lease
    drift: Drift | None = None
    """Drift of the anchor kernels that rows between leases are divided by; None where none is."""


@dataclass(frozen=True)
class Lease:
    """Variance of the difference of two identical leases a row, with its freedom; 0 in one lease."""

    variance: Floats
    degrees: Floats
    known: Mask
    """False where nothing says how far leases differ, and the conservative floor stands for it."""


def judge(
    pairs: Pairs, limits: ComparisonLimits, anchors: Mask | None = None, *, unit: str = "processes"
) -> Judged:
    """Verdicts of all pairs, false discovery rate controlled over those that have enough processes.

    ``anchors`` marks kernels that both builds share: where enough of them were measured in both leases, every
    difference between leases is divided by their median drift. ``unit`` is what a replicate is called.
    Excluded rows come back UNDECIDED with an empty reason.
    """
    within, freedom = _within(pairs, limits)
    difference = pairs.mean_log[1] - pairs.mean_log[0]
    chosen = pairs.between & ~pairs.excluded & (anchors if anchors is not None else False)
    drift = drift_of(difference, within, chosen)
    lease = _lease(pairs, limits, drift)
    shift = np.where(pairs.between, drift.log if drift else 0.0, 0.0)
    test = tested(difference - shift, *added(within, freedom, lease.variance, lease.degrees))
    floor, floor_reason = floors(pairs, lease, limits)
    decision = decide(_effects(pairs, test, floor, lease, limits), rule(limits, unit))
    note = "; between-lease spread unknown: no archived A/A runs of this device and method"
    decision.reason[pairs.between & ~lease.known & ~pairs.excluded] += note
    return Judged(
        decision.verdict, decision.reason, test, decision.q_value, floor, floor_reason, decision.extra,
        within, freedom, lease, drift,
    )  # fmt: skip


def rule(limits: ComparisonLimits, unit: str = "processes") -> Rule:
    """What ``limits`` ask of a verdict, in the words of the one decision."""
    return Rule(
        limits.alpha, limits.power, limits.min_processes, limits.max_processes, limits.same_within,
        unit
    )  # fmt: skip


def _effects(pairs: Pairs, test: Welch, floor: Floats, lease: Lease, limits: ComparisonLimits) -> Effects:
    low, high = (np.log(end) for end in test.interval(limits.alpha))
    same_low, same_high = (np.log(end) for end in test.interval(2 * limits.alpha))
    return Effects(
        difference=test.difference, low=low, high=high, same_low=same_low, same_high=same_high,
        p_value=test.p_value, floor=floor, counts=pairs.processes,
        variance=(pairs.variance_log[0] + pairs.variance_log[1]) / 2, lease_variance=lease.variance,
        excluded=pairs.excluded, lease_degrees=lease.degrees,
    )  # fmt: skip


def _within(pairs: Pairs, limits: ComparisonLimits) -> tuple[Floats, Floats]:
    """Variance of each difference by processes alone and its freedom, moderated over the table.

    The timer's rounding bounds the variance of process values from below.
    """
    variance = []
    for call, own, free in zip(pairs.call_ns, pairs.variance_log, pairs.freedom, strict=True):
        with np.errstate(invalid="ignore", divide="ignore"):
            rounding = limits.timer_tick_ns**2 / 12 / call**2
        variance.append(np.fmax(own, np.where(free > 0, rounding, np.nan)))
    alone = welch(pairs.mean_log, (variance[0], variance[1]), pairs.processes, pairs.freedom)
    return moderate(alone.error**2, alone.degrees)


def _lease(pairs: Pairs, limits: ComparisonLimits, drift: Drift | None) -> Lease:
    unknown = np.log1p(limits.unknown_lease_floor) / limits.spread_multiple
    known = ~np.isnan(pairs.spread)
    variance = np.where(known, two_sided(pairs.spread) ** 2, unknown**2)
    degrees = np.where(known, pairs.degrees, CERTAIN)
    if drift is not None:
        history = ~np.isnan(pairs.own)
        own = np.where(history, two_sided(pairs.own) ** 2, drift.own_variance)
        variance = own + drift.error_variance
        degrees = np.where(history, pairs.own_degrees, drift.degrees)
        known = np.ones(len(known), dtype=bool)
    return Lease(np.where(pairs.between, variance, 0.0), np.where(pairs.between, degrees, CERTAIN), known)


def floors(pairs: Pairs, lease: Lease, limits: ComparisonLimits) -> tuple[Floats, Texts]:
    """Effect floor of each pair in logs, and which of the floors was the largest."""
    rows = len(pairs.between)
    with np.errstate(invalid="ignore", divide="ignore"):
        absolute = np.log1p(limits.absolute_floor_ns / pairs.call_ns[0])
    candidates = np.stack(
        [
            np.full(rows, np.log1p(limits.relative_floor)),
            np.where(np.isnan(absolute), 0.0, absolute),
            # In one lease the arms alternate and share its drift: ABBA order cancels it, and this is 0.
            limits.spread_multiple * np.sqrt(lease.variance),
        ]
    )
    multiple = f"{limits.spread_multiple:g} × A/A between leases"
    names = np.stack(
        [
            np.full(rows, f"{limits.relative_floor:.0%} relative floor"),
            np.full(rows, f"{limits.absolute_floor_ns:g} ns absolute floor"),
            np.where(lease.known, multiple, "between-lease spread unknown: conservative floor"),
        ]
    )
    largest = candidates.argmax(axis=0)
    return candidates.max(axis=0), names[largest, np.arange(rows)].astype(object)
