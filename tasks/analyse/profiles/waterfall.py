"""How the time of a step changed: wall = computing + exposed communication + idle, then by cost category."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewatch.tasks.analyse.profiles.equal import Differences
from tilewatch.tasks.analyse.profiles.judged_rows import refusal, verdict_columns
from tilewatch.tasks.analyse.profiles.units import Program
from tilewatch.tasks.analyse.profiles.values import Floats, Profile
from tilewatch.tasks.analyse.profiles.verdicts import CALLS, STEPS, Level, judged, replicates
from tilewatch.tasks.analyse.savings.exposed import COMMUNICATION
from tilewatch.tasks.analyse.statistics.limits import ComparisonLimits

STEP = "step"
PARTS = ("computing", "exposed communication", "idle")


def waterfall_rows(
    base: Program, candidate: Program, level: Level, differ: Differences, limits: ComparisonLimits
) -> list[dict[str, Any]]:
    """Rows of the step, its three parts and the cost categories; empty where a side has no steps.

    Means over the kept steps of all captures, so that the parts add up to the step exactly; the verdict rests
    on the logs of steps (or of capture medians) as everywhere. Categories carry no verdict of their own.
    """
    if not (base.has_steps and candidate.has_steps):
        return []
    sides = (base, candidate)
    series = [[_values(side, name) for side in sides] for name in (STEP, *PARTS)]
    means = [[float(values.mean()) for values in pair] for pair in series]
    replicated = [[_replicates(side, name, level) for side in sides] for name in (STEP, *PARTS)]
    medians = [np.array([np.median(pair[side]) for pair in series]) for side in (0, 1)]
    found = judged(
        [pair[0] for pair in replicated],
        [pair[1] for pair in replicated],
        (medians[0], medians[1]),
        [not min(pair) > 0 for pair in means],
        level,
        limits,
    )
    interval = found.test.interval(limits.alpha)
    rows = []
    for index, name in enumerate((STEP, *PARTS)):
        counts = (len(replicated[index][0]), len(replicated[index][1]))
        columns = (
            verdict_columns(found, index, level, counts, interval)
            if not differ.refused
            else refusal("; ".join(differ.refused))
        )
        if min(means[index]) <= 0 and not differ.refused:
            columns |= {"verdict_reason": "there is none of it on one side", "ratio": None}
        rows.append(
            {
                "kind": STEP if name == STEP else "part",
                "name": name,
                "communicates": name == PARTS[1],
                **_times(means[index], means[0]),
                **columns,
            }
        )
    return rows + _categories(base, candidate, means[0])


def _values(side: Program, name: str) -> Floats:
    return np.concatenate([_of_profile(profile, name) for profile in side.profiles])


def _of_profile(profile: Profile, name: str) -> Floats:
    if name == STEP:
        return profile.wall
    if name == PARTS[0]:
        return profile.computing
    return profile.communication if name == PARTS[1] else profile.idle


def _replicates(side: Program, name: str, level: Level) -> Floats:
    # Without steps enough single calls decide on groups, but the step still has only its few values.
    known = level.name if level.name != CALLS else STEPS
    return replicates([_of_profile(profile, name) for profile in side.profiles], side, known)


def _times(means: list[float], steps: list[float]) -> dict[str, Any]:
    base, candidate = means
    return {
        "base_step_ns": base,
        "candidate_step_ns": candidate,
        "base_exposed_ns": base,
        "candidate_exposed_ns": candidate,
        "base_share": base / steps[0] if steps[0] else None,
        "candidate_share": candidate / steps[1] if steps[1] else None,
        "difference_ns": candidate - base,
    }


def _categories(base: Program, candidate: Program, steps: list[float]) -> list[dict[str, Any]]:
    """One row a cost category: what of the step it owns; the largest change first."""
    sums = [_by_category(side) for side in (base, candidate)]
    rows = []
    for name in sorted(sums[0].keys() | sums[1].keys()):
        means = [side.get(name, (0.0, 0.0)) for side in sums]
        rows.append(
            {
                "kind": "category",
                "name": name,
                "communicates": name in COMMUNICATION,
                **_times([exposed for exposed, _ in means], steps),
                "base_step_ns": means[0][1],
                "candidate_step_ns": means[1][1],
                "verdict": "UNDECIDED",
                "verdict_reason": "a category is a sum for orientation; its kernel groups are judged",
            }
        )
    return sorted(rows, key=lambda row: -abs(row["difference_ns"]))


def _by_category(side: Program) -> dict[str, tuple[float, float]]:
    """Mean exposed time and mean kernel sum a step by category, ns."""
    exposed: dict[str, float] = {}
    steps = sum(len(profile.wall) for profile in side.profiles)
    for profile in side.profiles:
        for name, total in zip(profile.categories, profile.by_category.sum(axis=0), strict=True):
            exposed[name] = exposed.get(name, 0.0) + float(total)
    sums: dict[str, float] = {}
    for group, spent in zip(side.groups, side.step_ns, strict=True):
        sums[group["category"]] = sums.get(group["category"], 0.0) + float(spent)
    return {name: (total / steps, sums.get(name, 0.0)) for name, total in exposed.items()}
