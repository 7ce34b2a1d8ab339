"""The steps of one capture: marked by the profiler or found as a repetition; odd ones are set aside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewatch.tasks.analyse.profiles.repetition import Repetition, find_repetition
from tilewatch.tasks.analyse.profiles.rows import Integers, Mask, Rows

OUTSIDE = -1
MARKED, FOUND, WHOLE = "marked", "found", "whole"


@dataclass(frozen=True)
class StepLimits:
    """When a step is odd, and when a repetition is believed against one mark around everything."""

    slow_ratio: float = 1.5
    """A step this much longer than the median step is set aside: it is not the program's steady state."""
    slow_deviations: float = 8.0
    """And by as many median absolute deviations, so that a noisy profile keeps its steps."""
    few_steps: int = 3
    """Under it no step can be called odd by its time."""
    inside_one_mark: float = 0.8
    """Share that a repetition must cover to be believed where all kernels carry one and the same step id."""


@dataclass(frozen=True)
class Odd:
    """A step that is set aside, and why."""

    step: int
    reason: str


@dataclass(frozen=True)
class Steps:
    """``of_row`` is the number of each row's step, OUTSIDE where it has none; times bound every step.

    ``kept`` marks the steps that count; ``model`` are the rows of the main stream of a step as the program
    repeats it. Without steps (``how`` is ``whole``) the whole capture is one, and times a step mean nothing.
    """

    how: str
    of_row: Integers
    begin: Integers
    end: Integers
    kept: Mask
    odd: tuple[Odd, ...]
    model: Integers
    sentence: str

    @property
    def wall(self) -> Integers:
        """Wall time of every step, ns."""
        return self.end - self.begin


def steps_of(rows: Rows, limits: StepLimits | None = None) -> Steps:
    """Steps as marked; where the profiler marks none (or one around all) as repeated, else the whole."""
    limits = limits or StepLimits()
    marks = np.unique(rows.step_id[rows.step_id >= 0])
    if len(marks) >= 2:
        return _marked(rows, marks, limits)
    main = np.flatnonzero(rows.main)
    found = _repetition(rows, main)
    if found is not None:
        share = float(found.same.sum() * found.length / len(main))
        if not len(marks) or share >= limits.inside_one_mark:
            return _found(rows, main, found, limits)
    if len(marks):
        return _marked(rows, marks, limits)
    sentence = "no step is marked and no repeated sequence found: the whole capture, call by call"
    return _whole(rows, sentence)


def _repetition(rows: Rows, main: Integers) -> Repetition | None:
    if len(main) < 4:
        return None
    gaps = np.zeros(len(main), dtype=np.int64)
    gaps[1:] = rows.start[main][1:] - np.maximum.accumulate(rows.end[main])[:-1]
    return find_repetition(rows.op[main], rows.group[main], gaps)


def _whole(rows: Rows, sentence: str) -> Steps:
    begin, end = rows.start.min(initial=0), rows.end.max(initial=0)
    return Steps(
        WHOLE,
        np.zeros(len(rows.start), dtype=np.int64),
        np.array([begin]),
        np.array([end]),
        np.array([True]),
        (),
        np.flatnonzero(rows.main),
        sentence,
    )


def _found(rows: Rows, main: Integers, found: Repetition, limits: StepLimits) -> Steps:
    starts = rows.start[main]
    begin = starts[found.places[:-1]]
    after = found.places[-1] < len(main)
    last = starts[found.places[-1]] if after else rows.end.max()
    end = np.append(begin[1:], last)
    of_row = np.searchsorted(begin, rows.start, side="right") - 1
    of_row[rows.start >= last] = OUTSIDE
    lengths = np.diff(found.places)
    odd = {
        int(step): f"{int(lengths[step])} kernels where the others have {found.length}"
        if lengths[step] != found.length
        else "other kernels than the others"
        for step in np.flatnonzero(~found.same)
    }
    op = rows.groups["op"][int(rows.group[main[found.places[0]]])].as_py()
    outside = int((of_row == OUTSIDE).sum())
    sentence = (
        f"{int(found.same.sum())} repetitions of {found.length} kernels found, each from {op} to the next; "
        f"{outside} of {len(of_row)} kernels stand outside of them"
    )
    model_step = int(np.flatnonzero(found.same)[0])
    model = main[found.places[model_step] : found.places[model_step] + found.length]
    return _judged(FOUND, of_row, begin, end, odd, model, sentence, limits)


def _marked(rows: Rows, marks: Integers, limits: StepLimits) -> Steps:
    of_row = np.where(rows.step_id >= 0, np.searchsorted(marks, rows.step_id), OUTSIDE)
    inside = of_row != OUTSIDE
    begin = np.full(len(marks), np.iinfo(np.int64).max)
    last = np.zeros(len(marks), dtype=np.int64)
    np.minimum.at(begin, of_row[inside], rows.start[inside])
    np.maximum.at(last, of_row[inside], rows.end[inside])
    # What the device waits between two steps that follow each other belongs to the earlier one.
    follows = np.append((np.diff(marks) == 1) & (np.diff(begin) > 0), False)
    end = np.where(follows, np.append(begin[1:], 0), last)
    main = rows.main & inside
    signatures = [rows.op[main & (of_row == step)].tobytes() for step in range(len(marks))]
    _, index, counts = np.unique(np.array(signatures, dtype=object), return_inverse=True, return_counts=True)
    usual = counts.argmax()
    odd = {}
    if counts[usual] * 2 > len(marks):
        odd = {int(s): "other kernels than the others" for s in np.flatnonzero(index != usual)}
    model = np.flatnonzero(main & (of_row == int(np.flatnonzero(index == usual)[0])))
    outside = len(of_row) - int(inside.sum())
    sentence = f"{len(marks)} {'step' if len(marks) == 1 else 'steps'} as the profiler marks them" + (
        f"; {outside} of {len(of_row)} kernels carry no step" if outside else ""
    )
    return _judged(MARKED, of_row, begin, end, odd, model, sentence, limits)


def _judged(
    how: str,
    of_row: Integers,
    begin: Integers,
    end: Integers,
    odd: dict[int, str],
    model: Integers,
    sentence: str,
    limits: StepLimits,
) -> Steps:
    """Steps with the odd ones set aside: other kernels, or far longer than the median of the rest."""
    wall = end - begin
    usual = np.array([step not in odd for step in range(len(wall))], dtype=np.bool_)
    if usual.sum() >= limits.few_steps:
        middle = float(np.median(wall[usual]))
        spread = float(np.median(np.abs(wall[usual] - middle)))
        slow = usual & (wall > limits.slow_ratio * middle) & (wall > middle + limits.slow_deviations * spread)
        for step in np.flatnonzero(slow):
            odd[int(step)] = f"{wall[step] / middle:.1f} times as long as the median step"
    kept = np.array([step not in odd for step in range(len(wall))], dtype=np.bool_)
    named = tuple(Odd(step, odd[step]) for step in sorted(odd))
    return Steps(how, of_row, begin, end, kept, named, model, sentence)
