"""Two programs by their profiles: step and parts, cost categories, kernel groups, verdicts, causes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tilewatch.data_contracts import from_rows
from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.tasks.analyse.profiles.equal import Differences, differences
from tilewatch.tasks.analyse.profiles.group_rows import group_rows
from tilewatch.tasks.analyse.profiles.match import Unit
from tilewatch.tasks.analyse.profiles.units import Program, matched, program
from tilewatch.tasks.analyse.profiles.values import profile_of
from tilewatch.tasks.analyse.profiles.verdicts import Level, level_of
from tilewatch.tasks.analyse.profiles.waterfall import waterfall_rows
from tilewatch.tasks.analyse.statistics.limits import ANALYSIS_VERSION, ComparisonLimits
from tilewatch.tasks.read.captures.profile_capture import ProfileSide


class ProfileError(TilewatchError):
    """Profiles that cannot be compared; the message names the side and what it lacks."""


@dataclass(frozen=True)
class ProfilesCompared:
    """A comparison of two profiles.

    ``rows`` keeps contract ``profile_comparisons``. ``base`` and ``candidate`` are the counted programs;
    ``notes`` say, a side, how steps were found, what was set aside and what could not be read.
    """

    rows: pa.Table
    base: Program
    candidate: Program
    level: Level
    differences: Differences
    notes: tuple[tuple[str, ...], tuple[str, ...]]
    units: tuple[Unit | None, ...]
    """Kernel groups behind every row; None for the step, its parts and the categories."""


def compare_profiles(
    base: ProfileSide,
    candidate: ProfileSide,
    *,
    names: tuple[str, str] = ("base", "candidate"),
    overrides: Sequence[str] = (),
    limits: ComparisonLimits | None = None,
) -> ProfilesCompared:
    """Compare what two programs ran.

    Times a step are compared where both sides have steps (marked or found), else single calls. ``overrides``
    name differences of collection that may be ignored. Raises ProfileError for a side without kernels.
    """
    limits = limits or ComparisonLimits()
    sides = _program(base, names[0]), _program(candidate, names[1])
    differ = differences(base.captures, candidate.captures, overrides)
    level = level_of(*sides, limits)
    rows = waterfall_rows(*sides, level, differ, limits)
    rows += group_rows(matched(*sides), *sides, level, differ, limits)
    shared = {
        "comparison_id": _identity(base, candidate, overrides),
        "baseline": names[0],
        "candidate": names[1],
        "build": names[1],
        "level": level.name,
        "overrides": sorted(overrides),
        "evidence": "measured",
        "analysis_version": ANALYSIS_VERSION,
    }
    units = tuple(row.pop("unit", None) for row in rows)
    numbered = [{**shared, **row, "row_index": index} for index, row in enumerate(rows)]
    table = from_rows("profile_comparisons", numbered)
    notes = _notes(sides[0], base.why), _notes(sides[1], candidate.why)
    return ProfilesCompared(table, *sides, level, differ, notes, units)


def _program(side: ProfileSide, name: str) -> Program:
    if not any(capture.kernels.num_rows for capture in side.captures):
        raise ProfileError(
            f"{name} holds no kernel with a time",
            "Name a folder that holds kernel_details.csv, op_summary_*.csv or a profiler database",
        )
    return program([profile_of(capture) for capture in side.captures], ranks=side.ranks)


def _identity(base: ProfileSide, candidate: ProfileSide, overrides: Sequence[str]) -> str:
    """Hash over names and kernel times of all captures, so that the same files give the same id."""
    digest = hashlib.sha256(repr((sorted(overrides), ANALYSIS_VERSION)).encode())
    for mark, side in (("base", base), ("candidate", candidate)):
        for capture in side.captures:
            digest.update(f"{mark} {capture.name} {capture.source}".encode())
            for column in ("start_ns", "duration_ns"):
                values = capture.kernels[column].fill_null(-1).to_numpy()
                digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:32]


def _notes(side: Program, taken_for: str) -> tuple[str, ...]:
    found = [taken_for] if len(side.profiles) > 1 else []
    for profile in side.profiles:
        capture, steps = profile.capture, profile.steps
        mark = f"{capture.name}: " if len(side.profiles) > 1 else ""
        found.append(f"{mark}{steps.sentence}")
        found += [f"{mark}step {odd.step} set aside: {odd.reason}" for odd in steps.odd[:5]]
        if len(steps.odd) > 5:
            found.append(f"{mark}{len(steps.odd) - 5} more steps set aside")
        untimed = capture.kernels["start_ns"].null_count
        if untimed:
            found.append(f"{mark}{untimed} kernels have no start time and are left out")
        if capture.refused:
            found.append(f"{mark}{capture.refused} rows could not be read; `tilewatch ingest` names them")
        found += [f"{mark}{note}" for note in capture.notes]
    return tuple(found)
