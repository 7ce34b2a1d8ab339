"""The detectors on plain arrays: what they say of edge cases, and what they refuse in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewatch.tasks.analyse.arrays import alerts_of, change_points_of, cliffs_of, fence_of, verdicts_of
from tilewatch.tasks.analyse.statistics.limits import ComparisonLimits
from tilewatch.tasks.analyse.tables import AnalysisError

STEP = np.repeat([100.0, 130.0], 30) + np.tile([0.0, 1.0, 2.0], 20)


def test_a_step_in_time_is_where_the_new_level_begins() -> None:
    assert change_points_of(STEP) == alerts_of(STEP) == [30]
    assert change_points_of(list(-STEP)) == [30]
    assert change_points_of(STEP, min_magnitude=0.5) == []


@pytest.mark.parametrize(
    "values", [[], [1.0], [1.0, 2.0], [5.0] * 100, [0.0] * 100, [1e308] * 60, [1e-300] * 60]
)
def test_a_series_without_a_change_has_none(values: list[float]) -> None:
    assert change_points_of(values) == alerts_of(values) == []


@pytest.mark.parametrize("window", [2, 3, 7, 1_000])
def test_any_window_of_two_or_more_comes_to_an_end(window: int) -> None:
    found = change_points_of(STEP, window=window)
    assert found == ([30] if window > 7 else found)


def test_cliffs_come_in_any_order_of_rows_and_several_curves_at_once() -> None:
    axis = np.tile(np.arange(100, 161), 2)
    values = np.where(axis > 128, 36_000.0, 20_000.0)
    values[61:] = 20_000.0
    curve = np.repeat(["stepped", "flat"], 61)
    order = np.random.default_rng(1).permutation(len(axis))
    (found,) = cliffs_of(axis[order], values[order], curve[order])
    assert (found.before, found.after, found.kind, found.ratio) == (128, 129, "step", 1.8)
    assert (axis[order][found.low], curve[order][found.low]) == (128, "stepped")


def test_too_few_or_equal_values_along_an_axis_are_no_cliff() -> None:
    assert cliffs_of([], []) == cliffs_of([8], [20_000.0]) == []
    assert cliffs_of(range(1, 200), [20_000.0] * 199) == []
    assert [c.kind for c in cliffs_of([128, 129], [20_000.0, 40_000.0])] == ["unrefined"]


def test_a_fence_without_history_is_wide_and_with_it_as_narrow_as_the_spread() -> None:
    before, after = [20_000.0, 20_000.0], [20_100.0, 23_000.0]
    assert fence_of(before, after).outside.tolist() == [False, False]
    held = fence_of(before, after, [0.002, 0.002], leases=8)
    assert held.outside.tolist() == [False, True]
    assert fence_of([], []).outside.tolist() == []


def test_verdicts_of_process_values_need_five_of_them_and_one_is_never_enough() -> None:
    noise = np.random.default_rng(2).normal(0, 0.002, (3, 8))
    base = 20_000 * np.exp(noise)
    candidate = base[:, ::-1] * np.array([[1.0], [1.1], [0.9]])
    assert verdicts_of(base, candidate).verdict.tolist() == ["SAME", "SLOWER", "FASTER"]
    alone = verdicts_of(base[:, :1], 2 * candidate[:, :1])
    assert alone.verdict.tolist() == ["UNDECIDED"] * 3
    assert set(alone.reason) == {"a single process says nothing about chance"}
    candidate[0, :] = np.nan
    lacking = verdicts_of(base, candidate)
    assert (lacking.verdict[0], lacking.extra_processes[0]) == ("UNDECIDED", -1)
    assert verdicts_of(np.empty((0, 5)), np.empty((0, 5))).verdict.tolist() == []


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: change_points_of([1.0, np.nan]), "values: 1 of 2 are not finite, the first at 1"),
        (lambda: alerts_of([[1.0], [2.0]]), "values: one dimension is needed, not 2"),
        (lambda: change_points_of([1.0], window=1), "window 1 must be at least 2"),
        (lambda: cliffs_of([1, 2], [5.0, 0.0]), "values: 1 of 2 are not above 0, the first at 1"),
        (lambda: cliffs_of([1, 2], [5.0]), "2 axis values, 1 values"),
        (lambda: cliffs_of([1.5], [5.0]), "axis: 1.5 is no whole number"),
        (lambda: cliffs_of([8, 8], [5.0, 6.0], ["a", "a"]), "curve a: axis value 8 occurs more than once"),
        (lambda: fence_of([1.0], [1.0, 2.0]), "1 values before, 2 after"),
        (lambda: verdicts_of([1.0], [1.0]), r"base: \[points, processes\] is needed"),
        (lambda: verdicts_of([[1.0]], [[-1.0]]), "candidate: process values must be above 0"),
        (lambda: verdicts_of([[1.0]], [[1.0], [1.0]]), "1 points in the baseline, 2 in the candidate"),
        (
            lambda: verdicts_of([[1.0]], [[1.0]], base_method="quant outside", candidate_method="inside"),
            "refused: the method differs: 'quant outside' -> 'inside'",
        ),
    ],
)
def test_what_cannot_be_judged_is_refused_with_its_place(call: Any, words: str) -> None:
    with pytest.raises(AnalysisError, match=words):
        call()


def test_limits_can_be_given() -> None:
    base = np.full((1, 5), 20_000.0) + np.arange(5)
    wide = ComparisonLimits(relative_floor=0.5, same_within=0.25)
    assert verdicts_of(base, 1.2 * base, limits=wide).verdict.tolist() == ["SAME"]
