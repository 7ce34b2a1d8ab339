"""The one rule of decision: operators, servers and profiles get their verdict, reason and advice here.

A pair is **different** (FASTER, SLOWER) if it has enough replicates, its q value (false discovery rate over
the table) is at most alpha, its interval leaves out 1 and the difference is larger than the *effect floor*.
It is the **SAME** if the interval of two one-sided tests at alpha (the ``1 - 2 alpha`` interval; Schuirmann
1987) lies within ± ``same_within``: what a *user* calls the same, never what the noise allows. A noisy pair
is UNDECIDED, and the reason says what is excluded. A difference beyond chance and beyond the floor is named
even if all of it lies within ``same_within``.

**The effect floor** is the smallest difference worth a verdict, and the largest of

- the relative floor of the metric (and for times an absolute one, near the timer's resolution);
- *3 × A/A*. It means one thing everywhere: three times the standard deviation of **the difference of two
  identical sides**, measured as these two were. The difference of two independent values that each scatter by
  s scatters by √2·s, so the √2 is in it (``two_sided``). Between leases s is the spread of one build over
  archived leases; between launches of one lease it is the launches' own scatter by the root of their number.
  Operators in one lease have no such floor: ABBA order cancels what the two sides share, and what is left is
  in the error of the test.

More replicates are asked for only if they would help: see ``power.chance_to_decide``. For sequential judging,
``Rule.alpha`` is the level of one look, and ``Decision.extra`` is 0 if no number up to the cap would decide:
such a point is not worth a further round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from tilewatch.tasks.analyse.statistics.power import Outlook, chance_to_decide, replicates_needed
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers
from tilewatch.tasks.analyse.statistics.stats import CERTAIN, benjamini_hochberg

Texts = npt.NDArray[np.object_]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rule:
    """What a verdict asks for; ``ComparisonLimits.rule`` and ``ServingLimits.rule`` say why each value."""

    alpha: float
    """False discovery rate over the table, and the level of each one-sided test of equality."""
    power: float
    """Chance to decide from which on more replicates are asked for."""
    fewest: int
    """Replicates a side before anything but UNDECIDED is said."""
    most: int
    """Cap up to which UNDECIDED asks for more."""
    same_within: float
    """Ratio minus one that a user calls the same."""
    unit: str
    """What one replicate is called, in the plural: processes, launches, steps."""


@dataclass(frozen=True)
class Effects:
    """One row a pair, in logs of candidate over base; NaN where a side has no value or scatter."""

    difference: Floats
    low: Floats
    high: Floats
    """The ``1 - alpha`` interval of the difference: what is printed."""
    same_low: Floats
    same_high: Floats
    """Its ``1 - 2 alpha`` interval: what equality is judged by."""
    p_value: Floats
    floor: Floats
    """Smallest difference worth a verdict; NaN where it is not known, and then nothing is decided."""
    counts: tuple[Integers, Integers]
    variance: Floats
    """Of one replicate: the mean of the two sides."""
    lease_variance: Floats
    """Of the difference, that no further replicate narrows: 0 in one lease, NaN where it is unknown."""
    excluded: Mask
    """Rows that get no statistics: refused, missing, nothing to time."""
    more_is_better: Mask | bool = False
    """True for rates: more of it is FASTER."""
    lease_degrees: Floats | float = CERTAIN
    """Degrees of freedom that ``lease_variance`` is known with."""


@dataclass(frozen=True)
class Decision:
    """One row a pair. ``extra`` is −1 if nothing is asked, 0 if no number up to the cap would decide."""

    verdict: Texts
    reason: Texts
    extra: Integers
    q_value: Floats


def two_sided(spread: Floats) -> Floats:
    """A/A: standard deviation of the difference of two identical sides that each scatter by ``spread``."""
    return np.asarray(np.sqrt(2.0) * spread)


def decide(effects: Effects, rule: Rule) -> Decision:
    """Verdict, reason, replicates still needed and q value a row; excluded rows have an empty reason."""
    fewest = np.minimum(*effects.counts)
    enough = (fewest >= rule.fewest) & ~effects.excluded
    q_value = benjamini_hochberg(np.where(enough, effects.p_value, np.nan))
    margin = np.log1p(rule.same_within)
    with np.errstate(invalid="ignore"):
        beyond = (effects.low > 0) | (effects.high < 0)
        differs = enough & beyond & (q_value <= rule.alpha) & (np.abs(effects.difference) > effects.floor)
        same = enough & ~differs & (effects.same_low >= -margin) & (effects.same_high <= margin)
        slower = (effects.difference > 0) ^ np.asarray(effects.more_is_better)
    verdict = np.select([differs & slower, differs, same], ["SLOWER", "FASTER", "SAME"], "UNDECIDED")
    undecided = ~(differs | same) & ~effects.excluded
    extra = _extra(effects, rule, np.flatnonzero(undecided), q_value)
    reason = _reasons(effects, rule, verdict, extra)
    return Decision(verdict.astype(object), reason, extra, q_value)


def _extra(effects: Effects, rule: Rule, rows: Integers, q_value: Floats) -> Integers:
    """Replicates a side still to measure: up to the fewest first, then as many as decide with the power."""
    fewest = np.minimum(*effects.counts)[rows]
    lease_degrees = np.broadcast_to(effects.lease_degrees, effects.floor.shape)
    known = Outlook(
        effects.difference[rows], effects.variance[rows], effects.lease_variance[rows], lease_degrees[rows],
        fewest, effects.floor[rows], np.full(len(rows), np.log1p(rule.same_within)),
    )  # fmt: skip
    sizes = np.arange(rule.fewest, rule.most + 1)
    chance = chance_to_decide(known, sizes, alpha=rule.alpha, reject=_rejected_at(q_value, rule.alpha))
    chance = np.where(sizes[None, :] > fewest[:, None], chance, np.nan)
    needed = np.maximum(replicates_needed(chance, sizes, rule.power), fewest)
    # Under the fewest nothing is ever decided: they come first, and what they show says what is next.
    extra = np.full(len(effects.floor), -1, dtype=np.int64)
    extra[rows] = np.where(fewest < rule.fewest, rule.fewest, needed) - fewest
    return extra


def _rejected_at(q_value: Floats, alpha: float) -> float:
    """The p value that one row more must reach to be rejected beside those that are (Benjamini-Hochberg)."""
    tested = max(int(np.count_nonzero(~np.isnan(q_value))), 1)
    with np.errstate(invalid="ignore"):
        rejected = int(np.count_nonzero(q_value <= alpha))
    return alpha * min(rejected + 1, tested) / tested


def _reasons(effects: Effects, rule: Rule, verdict: npt.NDArray[np.str_], extra: Integers) -> Texts:
    fewest = np.minimum(*effects.counts)
    unknown = np.isnan(effects.floor) | np.isnan(effects.lease_variance)
    words = np.select(
        [
            effects.excluded,
            np.isin(verdict, ["FASTER", "SLOWER"]),
            verdict == "SAME",
            fewest < 2,
            fewest < rule.fewest,
            unknown,
        ],
        [
            "",
            "the difference is beyond chance and beyond the floor",
            f"equal within {percent(rule.same_within)}",
            f"a single {_single(rule.unit)} says nothing about chance",
            f"fewer than {rule.fewest} {rule.unit} a side",
            "measured in different leases, and no archived A/A runs say how far leases differ",
        ],
        "open",
    ).astype(object)
    for row in np.flatnonzero(words == "open").tolist():
        words[row] = f"{_excluded(effects, row)}; {_way_on(effects, rule, row, int(extra[row]))}"
    return words


def _single(unit: str) -> str:
    return {"processes": "process", "launches": "launch"}.get(unit, unit.removesuffix("s"))


def percent(share: float) -> str:
    """``0.02`` as 2%, ``0.005`` as 0.5%."""
    return f"{100 * share:g}%"


def _excluded(effects: Effects, row: int) -> str:
    """What an undecided row rules out, in the words of its metric."""
    low, high = np.exp(effects.low[row]), np.exp(effects.high[row])
    if not low < 1 < high:
        return f"between ×{low:.3f} and ×{high:.3f}: not beyond the floor, or chance in a table of this size"
    rate = np.broadcast_to(effects.more_is_better, effects.floor.shape)[row]
    slowest, fastest = (low, high) if rate else (high, low)
    return f"not slower than ×{slowest:.3f} and not faster than ×{fastest:.3f}"


def _way_on(effects: Effects, rule: Rule, row: int, extra: int) -> str:
    if extra > 0:
        return f"{extra} more {rule.unit} a side would decide in {rule.power:.0%} of such cases"
    if effects.lease_variance[row] > 0 and not _leases_allow(effects, rule, row):
        return f"more {rule.unit} would not help: how far leases differ is known too badly"
    return f"up to {rule.most} {rule.unit} a side would not decide it"


def _leases_allow(effects: Effects, rule: Rule, row: int) -> bool:
    """Whether endless replicates in the same leases would reach one of the two bars."""
    degrees = float(np.broadcast_to(effects.lease_degrees, effects.floor.shape)[row])
    error = float(stats.t.ppf(1 - rule.alpha, degrees) * np.sqrt(effects.lease_variance[row]))
    size = abs(float(effects.difference[row]))
    return bool(error < np.log1p(rule.same_within) - size or size > max(error, float(effects.floor[row])))
