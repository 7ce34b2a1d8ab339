"""Matched work as rows: what a unit is on either side, and what of it changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tilewatch.tasks.analyse.profiles.match import NEW, REPLACED, VANISHED, Group, Unit, match
from tilewatch.tasks.analyse.profiles.values import Floats, Profile

CONVERSIONS = {"TransData", "Cast", "NPUFormatCast", "Transpose", "TransposeD", "Identity", "TensorMove"}
"""Operators that only move or convert: a new one says that another format, dtype or layout is used."""
_VERSION = re.compile(r"V\d+$")
_SLOWER_CLOCK = 0.98
"""Ratio of frequencies under which the clock is named as a cause: the relative floor of comparisons."""


@dataclass(frozen=True)
class Program:
    """All captures of one side with kernel groups in common: ``groups`` are rows of what they are.

    ``index`` maps, a capture, its own groups to those of the program. With ``ranks`` the captures are ranks
    of one run, which wait for each other: they are no replicates.
    """

    profiles: tuple[Profile, ...]
    groups: tuple[dict[str, Any], ...]
    index: tuple[dict[int, int], ...]
    ranks: bool = False

    @property
    def has_steps(self) -> bool:
        """True where every capture was cut into steps."""
        return all(profile.has_steps for profile in self.profiles)

    @cached_property
    def calls(self) -> Floats:
        """Mean calls a step (of the whole where there are no steps) of every group."""
        return self._mean("calls")

    @cached_property
    def step_ns(self) -> Floats:
        """Mean summed duration a step of every group, ns."""
        return self._mean("time")

    @cached_property
    def exposed_ns(self) -> Floats:
        """Mean exposed time a step of every group, ns."""
        return self._mean("exposed")

    def _mean(self, which: str) -> Floats:
        total, steps = np.zeros(len(self.groups)), 0
        for profile, index in zip(self.profiles, self.index, strict=True):
            values = getattr(profile, which)
            steps += len(values)
            total[[index[i] for i in range(values.shape[1])]] += values.sum(axis=0)
        return total / max(steps, 1)

    def own(self, groups: Sequence[int], capture: int) -> list[int]:
        """The groups of one capture that are these groups of the program."""
        wanted = set(groups)
        return [mine for mine, common in self.index[capture].items() if common in wanted]

    def to_match(self) -> list[Group]:
        """Groups as matching sees them."""
        return [
            Group(int(g["code"]), int(g["relaxed"]), g["op"], float(calls) if self.has_steps else None)
            for g, calls in zip(self.groups, self.calls, strict=True)
        ]

    def sequence(self) -> list[int]:
        """Groups in the order of a step of the first capture."""
        return [self.index[0][group] for group in self.profiles[0].sequence()]


def program(profiles: Sequence[Profile], *, ranks: bool = False) -> Program:
    """Captures of one side as one program."""
    groups: dict[int, int] = {}
    rows: list[dict[str, Any]] = []
    index: list[dict[int, int]] = []
    for profile in profiles:
        mine: dict[int, int] = {}
        for number, row in enumerate(profile.rows.groups.to_pylist()):
            if row["code"] not in groups:
                groups[row["code"]] = len(rows)
                rows.append(row)
            mine[number] = groups[row["code"]]
        index.append(mine)
    return Program(tuple(profiles), tuple(rows), tuple(index), ranks)


def matched(base: Program, candidate: Program) -> list[Unit]:
    """The work of both programs in units; groups that no kept step calls are left out."""
    order = base.sequence(), candidate.sequence()
    kept = []
    for unit in match(base.to_match(), candidate.to_match(), order):
        a = _in_order((i for i in unit.base if base.calls[i] > 0), order[0])
        b = _in_order((j for j in unit.candidate if candidate.calls[j] > 0), order[1])
        if a and b:
            kept.append(Unit(a, b, unit.change))
        elif a or b:
            kept.append(Unit(a, b, VANISHED if a else NEW))
    return kept


def _in_order(groups: Iterable[int], sequence: Sequence[int]) -> tuple[int, ...]:
    """Groups as they first stand in the sequence of a step; what is on other streams behind them."""
    found = tuple(groups)
    if len(found) < 2:
        return found
    places = {group: place for place, group in reversed(list(enumerate(sequence)))}
    return tuple(sorted(found, key=lambda group: (places.get(group, len(sequence)), group)))


def cause(unit: Unit, base: Program, candidate: Program) -> str:
    """What of the two sides' own rows differs, as words; empty where nothing does."""
    a = [base.groups[i] for i in unit.base]
    b = [candidate.groups[j] for j in unit.candidate]
    if unit.change == NEW:
        converts = all(group["op"] in CONVERSIONS for group in b)
        return "a conversion appeared that the base does not have" if converts else "only in the candidate"
    if unit.change == VANISHED:
        return "only in the base"
    found = [_kernels(unit, a, b)]
    for key, words in (
        ("task_type", "core kind"),
        ("input_formats", "format"),
        ("output_formats", "output format"),
        ("input_dtypes", "dtype"),
        ("input_shapes", "shape"),
    ):
        if unit.change != REPLACED or key == "task_type":
            found.append(_changed(a, b, key, words))
    found += [_cores(a, b), _calls(unit, base, candidate), _clock(a, b)]
    return "; ".join(filter(None, found))


def _kernels(unit: Unit, a: Sequence[dict[str, Any]], b: Sequence[dict[str, Any]]) -> str:
    names = [list(dict.fromkeys(group["op"] for group in side)) for side in (a, b)]
    if set(names[0]) == set(names[1]):
        return ""
    bare = [{_VERSION.sub("", name) for name in side} for side in names]
    if bare[0] == bare[1]:
        words = "other dispatch"
    elif len(names[0]) > len(names[1]):
        words = "fused"
    else:
        words = "other kernel"
    return f"{words}: {' + '.join(names[0])} → {' + '.join(names[1])}"


def _changed(a: Sequence[dict[str, Any]], b: Sequence[dict[str, Any]], key: str, words: str) -> str:
    one, other = (list(dict.fromkeys(_text(group[key]) for group in side)) for side in (a, b))
    if set(one) == set(other):
        return ""
    return f"{words} {' and '.join(one[:3])} → {' and '.join(other[:3])}"


def _text(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, list):
        return ", ".join("×".join(map(str, v)) if isinstance(v, list) else str(v) for v in value)
    return str(value)


def _cores(a: Sequence[dict[str, Any]], b: Sequence[dict[str, Any]]) -> str:
    found = []
    for key, words in (("block_dim", "cores"), ("mix_block_dim", "cores of the second kind")):
        one, other = (sorted({g[key] for g in side if g[key]}) for side in (a, b))
        if one and other and one != other:
            found.append(f"{words} {', '.join(map(str, one))} → {', '.join(map(str, other))}")
    return "; ".join(found)


def _calls(unit: Unit, base: Program, candidate: Program) -> str:
    if not (base.has_steps and candidate.has_steps) or unit.change == REPLACED:
        return ""
    one, other = base.calls[list(unit.base)].sum(), candidate.calls[list(unit.candidate)].sum()
    if abs(one - other) < 0.01 * max(one, other):
        return ""
    return f"{'fewer' if other < one else 'more'} calls a step: {one:.4g} → {other:.4g}"


def _clock(a: Sequence[dict[str, Any]], b: Sequence[dict[str, Any]]) -> str:
    one, other = ([g["mhz"] for g in side if g["mhz"]] for side in (a, b))
    if not one or not other:
        return ""
    before, after = float(np.median(one)), float(np.median(other))
    return f"clock {before:.0f} → {after:.0f} MHz" if after < _SLOWER_CLOCK * before else ""
