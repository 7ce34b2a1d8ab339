"""From statistics to verdicts: effect floors, the decision, its reason, the processes it asks for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewatch.tasks.analyse.statistics.limits import ComparisonLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers
from tilewatch.tasks.analyse.statistics.stats import (
    Welch,
    benjamini_hochberg,
    needed_processes,
    upper_spread,
    welch,
)

Texts = npt.NDArray[np.object_]
Mask = npt.NDArray[np.bool_]


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
    fewest = np.minimum(*pairs.processes)
    enough = (fewest >= limits.min_processes) & ~pairs.excluded
    q_value = benjamini_hochberg(np.where(enough, test.p_value, np.nan))
    low, high = (np.log(end) for end in test.interval(limits.alpha))
    with np.errstate(invalid="ignore"):
        differs = enough & (q_value <= limits.alpha) & (np.abs(test.difference) > floor)
        same = enough & ~differs & (low >= -floor) & (high <= floor)
    verdict = np.select(
        [differs & (test.difference > 0), differs, same], ["SLOWER", "FASTER", "SAME"], "UNDECIDED"
    ).astype(object)
    undecided = ~(differs | same) & ~pairs.excluded
    extra = _extra(pairs, test, floor, undecided, limits)
    reason = _reason(pairs, limits, {"differs": differs, "same": same, "enough": enough, "extra": extra > 0})
    return Judged(verdict, reason, test, q_value, floor, floor_reason, extra)


def floors(pairs: Pairs, limits: ComparisonLimits, anchor_drift: float) -> tuple[Floats, Texts]:
    """Effect floor of each pair in logs, and which of the floors was the largest."""
    rows = len(pairs.between)
    known = ~np.isnan(pairs.spread)
    bound = _lease_spread(pairs, limits)
    # In one lease the arms alternate and share its drift: the spread itself is the floor the design asks for.
    spread = np.where(pairs.between, bound, np.where(known, pairs.spread, 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        absolute = np.log1p(limits.absolute_floor_ns / pairs.median_ns[0])
    candidates = np.stack(
        [
            np.full(rows, np.log1p(limits.relative_floor)),
            np.where(np.isnan(absolute), 0.0, absolute),
            limits.spread_multiple * spread,
            # What all share is drift; only what goes beyond it by the floor can be the candidate's own.
            np.where(pairs.between, anchor_drift + np.log1p(limits.relative_floor), 0.0),
        ]
    )
    multiple = f"{limits.spread_multiple:g} × between-lease A/A spread"
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


def _lease_spread(pairs: Pairs, limits: ComparisonLimits) -> Floats:
    unknown = np.log1p(limits.unknown_lease_floor) / limits.spread_multiple
    bound = upper_spread(pairs.spread, np.maximum(pairs.degrees, 1.0), limits.spread_confidence)
    return np.where(np.isnan(pairs.spread), unknown, bound)


def _test(pairs: Pairs, limits: ComparisonLimits) -> Welch:
    """Welch with two variances processes cannot show: the timer's rounding and, between leases, theirs."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rounding = [limits.timer_tick_ns**2 / 12 / value**2 for value in pairs.median_ns]
    variance = (
        np.fmax(pairs.variance_log[0], np.where(pairs.processes[0] > pairs.dies[0], rounding[0], np.nan)),
        np.fmax(pairs.variance_log[1], np.where(pairs.processes[1] > pairs.dies[1], rounding[1], np.nan)),
    )
    lease = np.where(pairs.between, 2 * _lease_spread(pairs, limits) ** 2, 0.0)
    return welch(pairs.mean_log, variance, pairs.processes, lease, pairs.dies)


def _extra(pairs: Pairs, test: Welch, floor: Floats, undecided: Mask, limits: ComparisonLimits) -> Integers:
    """Processes a side still to measure: up to the minimum first, then by power, within the cap."""
    extra = np.full(len(floor), -1, dtype=np.int64)
    rows = np.flatnonzero(undecided)
    fewest = np.minimum(*pairs.processes)[rows]
    variance = (pairs.variance_log[0][rows] + pairs.variance_log[1][rows]) / 2
    size = np.abs(test.difference[rows])
    # Under the floor SAME needs room up to the floor; over it, the difference itself must stand out.
    margin = np.where(size <= floor[rows], floor[rows] - size, size)
    lease = np.where(pairs.between[rows], 2 * _lease_spread(pairs, limits)[rows] ** 2, 0.0)
    needed = needed_processes(
        variance, margin, lease, alpha=limits.alpha, power=limits.power, cap=limits.max_processes
    )
    target = np.where(fewest < limits.min_processes, limits.min_processes, np.maximum(needed, fewest + 1))
    asked = np.maximum(np.minimum(target, limits.max_processes) - fewest, 0)
    # More processes do not narrow the spread between leases; only more archived leases do.
    hopeless = (fewest >= limits.min_processes) & (2 * np.sqrt(lease) > margin)
    extra[rows] = np.where(hopeless, 0, asked)
    return extra


def _reason(pairs: Pairs, limits: ComparisonLimits, masks: dict[str, Mask]) -> Texts:
    fewest = np.minimum(*pairs.processes)
    unknown = pairs.between & np.isnan(pairs.spread)
    words = np.select(
        [
            pairs.excluded,
            masks["differs"],
            masks["same"],
            fewest < 2,
            ~masks["enough"],
            masks["extra"],
        ],
        [
            "",
            "the difference is beyond chance and beyond the floor",
            "the confidence interval lies within the floor",
            "a single process says nothing about chance",
            f"fewer than {limits.min_processes} processes a side",
            "neither a difference nor equality within the floor is shown; more processes may decide",
        ],
        "not decided: more processes would not help, the cap or the between-lease spread is reached",
    ).astype(object)
    note = "; between-lease spread unknown: no archived A/A runs of this point"
    words[unknown & ~pairs.excluded] += note
    return words
