"""Answers at the level people ask at: a curve, an operator, an experiment, the build.

The answer is a geometric mean of the ratios of the points. Its error is not that of independent points: the
points of a sweep are measured by the same processes, and a process that is slow is slow at all of them. So
each process counts once: its mean deviation over the points of the level is one value, and the processes of
an arm are its replicates. What two leases share is added whole, for no number of points divides it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.analyse.comparison.decision import Effects, Texts, decide
from tilewatch.tasks.analyse.comparison.verdicts import Judged, Pairs, rule
from tilewatch.tasks.analyse.statistics.limits import ComparisonLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers
from tilewatch.tasks.analyse.statistics.stats import added, tested

LEVELS = ("curve", "operator", "experiment", "build")
"""From the narrowest to the widest."""

KEYS = {
    "curve": (
        "experiment", "base_arm", "candidate_arm", "operator", "linear", "axis", "k", "n", "launch_mode",
        "weight_format_requested", "allocation_regime", "local_experts", "group_shape",
    ),
    "operator": ("operator",),
    "experiment": ("experiment",),
    "build": (),
}  # fmt: skip
"""Columns of a comparison row that make a level."""


@dataclass(frozen=True)
class ProcessDeviations:
    """One row a (pair, process) of one side: what the process is off the centre of its point, in logs."""

    row: Integers
    """Place of the pair among the rows compared."""
    process: Integers
    """One integer a process."""
    stratum: Integers
    """One integer a (experiment, arm): the processes of an arm are its replicates."""
    log: Floats


@dataclass(frozen=True)
class LevelAnswers:
    """One value a compared row, that of the group it belongs to; NaN and empty where there is no answer."""

    ratio: Floats
    low: Floats
    high: Floats
    verdict: Texts
    worst: Floats
    """No point of the group is slower than this ratio (95 %, one-sided each)."""


def answers(
    rows: pa.Table,
    pairs: Pairs,
    judged: Judged,
    sides: tuple[ProcessDeviations, ProcessDeviations],
    limits: ComparisonLimits,
    weights: Floats | None = None,
) -> dict[str, LevelAnswers]:
    """Answers by level (LEVELS), aligned with ``rows``.

    Points count the same, or by ``weights`` (one a row, such as the time a step spends in each at the
    operating point). Rows that are refused, missing or have too few processes for a verdict count nowhere.
    """
    used = ~pairs.excluded & np.isfinite(judged.test.error)
    used &= np.minimum(*pairs.processes) >= limits.min_processes
    weight = np.where(used, 1.0 if weights is None else weights, 0.0)
    return {
        level: _level(_codes(rows, KEYS[level]), weight, pairs, judged, sides, limits) for level in LEVELS
    }


def _level(
    group: Integers,
    weight: Floats,
    pairs: Pairs,
    judged: Judged,
    sides: tuple[ProcessDeviations, ProcessDeviations],
    limits: ComparisonLimits,
) -> LevelAnswers:
    count = int(group.max(initial=-1)) + 1
    total = np.bincount(group, weight, count)
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = np.bincount(group, weight * np.nan_to_num(judged.test.difference), count) / total
    first, second = (_variance(one, group, weight, count) for one in sides)
    within, degrees = added(*first, *second)
    within = np.where(total > 0, within, np.nan)
    counted = weight > 0
    lease = np.zeros(count)
    np.maximum.at(lease, group[counted], judged.lease.variance[counted])
    known = np.full(count, np.inf)
    np.minimum.at(known, group[counted], judged.lease.degrees[counted])
    test = tested(difference, *added(within, degrees, lease, known))
    fewest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(fewest, group[counted], np.minimum(*pairs.processes)[counted])
    low, high = (np.log(end) for end in test.interval(limits.alpha))
    same_low, same_high = (np.log(end) for end in test.interval(2 * limits.alpha))
    floor = np.maximum(np.log1p(limits.relative_floor), limits.spread_multiple * np.sqrt(lease))
    decision = decide(
        Effects(
            difference=difference, low=low, high=high, same_low=same_low, same_high=same_high,
            p_value=test.p_value, floor=floor, counts=(fewest, fewest), variance=within, lease_variance=lease,
            excluded=np.isnan(test.error), lease_degrees=known,
        ),
        rule(limits),
    )  # fmt: skip
    worst = np.full(count, -np.inf)
    upper = np.log(judged.test.interval(2 * limits.alpha)[1])
    np.maximum.at(worst, group[counted], upper[counted])
    verdict = np.where(np.isnan(test.error), "", decision.verdict).astype(object)
    answered = np.where(np.isnan(test.error), np.nan, worst)
    return LevelAnswers(
        ratio=np.exp(difference)[group], low=np.exp(low)[group], high=np.exp(high)[group],
        verdict=verdict[group], worst=np.exp(answered)[group],
    )  # fmt: skip


def _variance(side: ProcessDeviations, group: Integers, weight: Floats, count: int) -> tuple[Floats, Floats]:
    """Variance of each group's mean by the processes of one side, and its degrees of freedom.

    Each arm of a group has its own processes; their variances add up with the squared share of the weight
    that the arm has (Satterthwaite for the freedom).
    """
    of, share = group[side.row], weight[side.row]
    cell, inverse = np.unique(of * (int(side.process.max(initial=0)) + 1) + side.process, return_inverse=True)
    first = np.zeros(len(cell), dtype=np.int64)
    first[inverse] = np.arange(len(inverse))
    weights = np.bincount(inverse, share, len(cell))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(inverse, share * side.log, len(cell)) / weights
    said = weights > 0
    strata = int(side.stratum.max(initial=0)) + 1
    place = (of[first] * strata + side.stratum[first])[said]
    size = count * strata
    processes = np.bincount(place, minlength=size).astype(np.float64)
    sums = np.bincount(place, mean[said], size)
    squares = np.bincount(place, mean[said] ** 2, size)
    held = np.bincount(of * strata + side.stratum, share, size).reshape(count, strata)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = (squares - sums**2 / processes) / (processes - 1)
        part = (held / held.sum(axis=1, keepdims=True)) ** 2 * (spread / processes).reshape(count, strata)
        part = np.where(held > 0, part, 0.0)
        free = np.where(held > 0, (processes - 1).reshape(count, strata), 1.0)
        variance = part.sum(axis=1)
        return variance, variance**2 / (part**2 / free).sum(axis=1)


def _codes(rows: pa.Table, columns: Sequence[str]) -> Integers:
    """An integer a row, equal where all columns are; nulls are equal to each other."""
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for name in columns:
        column = rows[name].combine_chunks().dictionary_encode().indices
        one = pc.fill_null(column, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        codes = np.unique(codes * (one.max(initial=0) + 1) + one, return_inverse=True)[1]
    return codes
