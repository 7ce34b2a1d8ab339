"""Verdicts over units of work: which level of replication decides, and what each side's values are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewatch.tasks.analyse.comparison.verdicts import Judged, Pairs, judge
from tilewatch.tasks.analyse.profiles.match import Unit
from tilewatch.tasks.analyse.profiles.units import Program
from tilewatch.tasks.analyse.profiles.values import Floats, Profile
from tilewatch.tasks.analyse.statistics.limits import ComparisonLimits

CAPTURES, STEPS, CALLS = "captures", "steps", "calls"
_MOST = {CAPTURES: 20, STEPS: 200, CALLS: 1000}
"""Replicates up to which UNDECIDED asks for more: longer profiles than these cost more than they tell."""


@dataclass(frozen=True)
class Level:
    """What is replicated: captures, else steps, else calls; ``sentence`` says how far a verdict reaches."""

    name: str
    sentence: str


def level_of(base: Program, candidate: Program, limits: ComparisonLimits) -> Level:
    """The highest level that both sides have enough of, and what would say more."""
    enough = limits.min_processes
    captures = [1 if side.ranks else len(side.profiles) for side in (base, candidate)]
    steps = [sum(len(p.wall) for p in side.profiles) if side.has_steps else 0 for side in (base, candidate)]
    if min(captures) >= enough:
        return Level(CAPTURES, f"judged by {captures[0]} and {captures[1]} captures")
    scope = "within this pair of captures" if max(captures) == 1 else "within these captures"
    more = f"{enough} captures a side, each from a fresh start of the program, would say whether it holds"
    if min(steps) >= enough:
        return Level(STEPS, f"{scope}, by {steps[0]} and {steps[1]} steps; {more}")
    why = f"fewer than {enough} comparable steps a side"
    return Level(CALLS, f"{scope}, by single calls, as there are {why}; {more}")


def values(units: Sequence[Unit], side: int, program: Program, level: str) -> list[Floats]:
    """Replicate values of every unit on one side: time a step by capture or step, or of single calls, ns.

    Steps in which the unit does not occur are left out.
    """
    found = []
    for unit in units:
        groups = unit.base if side == 0 else unit.candidate
        parts = [
            _of_capture(profile, program.own(groups, number), level)
            for number, profile in enumerate(program.profiles)
        ]
        found.append(replicates(parts, program, level))
    return found


def replicates(parts: Sequence[Floats], program: Program, level: str) -> Floats:
    """One side's values from those of its captures' steps: zeros, of steps without the work, are left out.

    Of captures the medians count; of ranks, which wait for each other, the median of each step over the
    ranks.
    """
    if level == CAPTURES:
        return np.array([np.median(values[values > 0]) for values in parts if (values > 0).any()])
    if program.ranks and level == STEPS and len(parts) > 1:
        shared = min(len(values) for values in parts)
        joined = np.median([values[:shared] for values in parts], axis=0)
    else:
        joined = np.concatenate(parts) if parts else np.empty(0)
    return np.asarray(joined[joined > 0])


def _of_capture(profile: Profile, groups: list[int], level: str) -> Floats:
    if level == CALLS:
        return profile.durations(groups)
    return np.asarray(profile.time[:, groups].sum(axis=1))


def judged(
    base: Sequence[Floats],
    candidate: Sequence[Floats],
    call_ns: tuple[Floats, Floats],
    excluded: Sequence[bool],
    level: Level,
    limits: ComparisonLimits,
) -> Judged:
    """The common decision over rows of replicate values; ``call_ns`` is what the absolute floor is held to.

    Two sides of one pair of captures are judged as they lie: nothing known of their leases widens the floor,
    which is why a verdict says that it holds within the captures.
    """
    sides = (base, candidate)
    logs = [[np.log(np.maximum(values, 1.0)) for values in side] for side in sides]
    rows = len(base)
    unknown = np.full(rows, np.nan)
    pairs = Pairs(
        processes=_pair(logs, len, np.int64),
        mean_log=_pair(logs, lambda v: v.mean() if len(v) else np.nan, np.float64),
        variance_log=_pair(logs, lambda v: v.var(ddof=1) if len(v) > 1 else np.nan, np.float64),
        freedom=_pair(logs, lambda v: max(len(v) - 1.0, 0.0), np.float64),
        call_ns=call_ns,
        between=np.zeros(rows, dtype=np.bool_),
        spread=unknown,
        degrees=unknown,
        own=unknown,
        own_degrees=unknown,
        excluded=np.asarray(excluded, dtype=np.bool_),
    )
    return judge(pairs, replace(limits, max_processes=_MOST[level.name]), unit=level.name)


def _pair(
    logs: Sequence[Sequence[Floats]], statistic: Callable[[Floats], float], kind: type[np.generic]
) -> tuple[Any, Any]:
    base, candidate = (np.array([statistic(values) for values in side], dtype=kind) for side in logs)
    return base, candidate
