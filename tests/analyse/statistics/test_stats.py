"""Every vectorised statistic against SciPy called row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tilewatch.tasks.analyse.arrays import verdicts_of
from tilewatch.tasks.analyse.statistics.moderation import moderate
from tilewatch.tasks.analyse.statistics.process_values import point_statistics, process_values
from tilewatch.tasks.analyse.statistics.robust import hold_stalls
from tilewatch.tasks.analyse.statistics.stats import benjamini_hochberg, upper_spread, welch
from tilewatch.tasks.analyse.tables import AnalysisError


def arrays(sides: Sequence[Sequence[Any]]) -> tuple[Any, Any, Any]:
    """(mean, variance, count) pairs as ``welch`` takes them."""
    logs = [[np.log(row) for row in side] for side in sides]
    mean = tuple(np.array([row.mean() for row in side]) for side in logs)
    variance = tuple(np.array([row.var(ddof=1) for row in side]) for side in logs)
    count = tuple(np.array([len(row) for row in side]) for side in logs)
    return mean, variance, count


def test_welch_is_scipy_row_by_row_with_its_interval() -> None:
    draw = np.random.default_rng(1)
    sides = [
        [draw.lognormal(9, 0.02, int(n)) for n in draw.integers(2, 12, 200)],
        [draw.lognormal(9.01, 0.05, int(n)) for n in draw.integers(2, 12, 200)],
    ]
    found = welch(*arrays(sides))
    low, high = found.interval(0.05)
    for row in range(200):
        slow = stats.ttest_ind(np.log(sides[1][row]), np.log(sides[0][row]), equal_var=False)
        interval = slow.confidence_interval(0.95)
        assert found.p_value[row] == pytest.approx(slow.pvalue)
        assert found.degrees[row] == pytest.approx(slow.df)
        assert (low[row], high[row]) == pytest.approx((np.exp(interval.low), np.exp(interval.high)))


@pytest.mark.parametrize("count", [5, 6, 10])
def test_normal_noise_is_left_in_its_place_and_a_stall_is_not(count: int) -> None:
    """Of normal values fewer than 0.1 % are moved; a process four times slower moves the centre by little."""
    draw = np.random.default_rng(count)
    logs = np.sort(draw.normal(9, 0.03, (2_000, count)), axis=1)
    starts, pool = np.arange(2_000) * count, np.zeros(2_000, dtype=np.int64)
    quiet = hold_stalls(logs.ravel(), starts, pool)
    assert np.mean(quiet.logs != logs.ravel()) < 0.001
    stalled = logs.copy()
    stalled[:, -1] += np.log(4)
    held = hold_stalls(stalled.ravel(), starts, pool)
    assert (held.kept == count - 1).mean() > 0.99
    moved = held.logs.reshape(-1, count).mean(axis=1) - logs.mean(axis=1)
    assert abs(moved).max() < 0.1 < (stalled.mean(axis=1) - logs.mean(axis=1)).min()


@pytest.mark.parametrize(("noise", "count"), [("normal", 5), ("normal", 10), ("stalls", 5), ("stalls", 10)])
def test_the_interval_of_held_values_covers_the_truth(noise: str, count: int) -> None:
    """Nominal 95 % intervals of verdicts_of, 8,000 rows each: printed, and not below 94 %."""
    draw = np.random.default_rng(count)
    sides = 0.02 * draw.standard_normal((2, 8_000, count))
    if noise == "stalls":
        sides += (draw.random(sides.shape) < 0.1) * draw.exponential(0.3, sides.shape)
    judged = verdicts_of(20_000 * np.exp(sides[0]), 21_000 * np.exp(sides[1]))
    low, high = judged.test.interval(0.05)
    covered = float(np.mean((low <= 1.05) & (high >= 1.05)))
    print(f"{noise}, {count} processes: {covered:.1%} of the 95 % intervals hold the true ratio")
    assert 0.94 <= covered <= 0.995


def test_moderated_variances_are_never_below_a_row_s_own_and_gain_freedom() -> None:
    draw = np.random.default_rng(2)
    variance = draw.chisquare(8, 200) / 8
    degrees = np.full(200, 8.0)
    found, free = moderate(variance, degrees)
    assert (found >= variance).all() and (free > degrees).all() and (free <= degrees + 4).all()
    assert np.median(found) < 1.3
    few, same = moderate(variance[:9], degrees[:9])
    assert (few == variance[:9]).all() and (same == 8).all()


def test_welch_without_spread_is_certain_and_without_difference_is_not() -> None:
    zero, three = np.zeros(2), np.array([3, 3])
    found = welch((zero, np.array([0.0, 0.1])), (zero, zero), (three, three))
    assert found.p_value.tolist() == [1.0, 0.0]


def test_welch_of_a_single_process_has_no_p() -> None:
    one, three = np.array([1]), np.array([3])
    found = welch((np.zeros(1), np.ones(1)), (np.array([np.nan]), np.ones(1)), (one, three))
    assert np.isnan(found.p_value[0]) and found.difference[0] == 1.0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.floats(0, 1), st.just(float("nan"))), min_size=1, max_size=60))
def test_benjamini_hochberg_is_the_slow_step_up_rule(values: list[float]) -> None:
    p = np.array(values)
    adjusted = benjamini_hochberg(p)
    tested = np.sort(p[~np.isnan(p)])
    for value, q in zip(p, adjusted, strict=True):
        if np.isnan(value):
            assert np.isnan(q)
        else:
            ranks = np.arange(1, len(tested) + 1)
            slow = min(1.0, (tested * len(tested) / ranks)[tested >= value].min())
            assert q == pytest.approx(slow)


def test_the_upper_bound_of_a_spread_covers_the_true_one_as_often_as_it_says() -> None:
    draw = np.random.default_rng(3)
    for leases in (2, 5, 10):
        estimated = draw.normal(0, 1, (20_000, leases)).std(axis=1, ddof=1)
        covered = np.mean(upper_spread(estimated, np.full(20_000, leases - 1.0), 0.8) >= 1)
        assert covered == pytest.approx(0.8, abs=0.01)


def test_a_process_value_is_the_median_of_its_kept_samples(make_run: Any, make_table: Any) -> None:
    run = make_run(np.full((1, 1), 100.0))
    one = run.samples.to_pylist()[0]
    rows = {
        "duration_ns": [900, 100, 120, 130, 5000, None],
        "warm_up": [True, False, False, False, False, False],
        "discarded": [False, False, False, False, True, False],
        "sample": list(range(6)),
        "null_reason": [None] * 5 + ["lost"],
    }
    samples = make_table("samples", 6, {**{k: v for k, v in one.items() if v is not None}, **rows})
    (value,) = process_values(samples, run.captures).to_pylist()
    assert (value["value_ns"], value["sample_count"], value["lease_id"]) == (120.0, 3, "lease1")


def test_samples_of_an_unknown_capture_are_an_error(make_run: Any) -> None:
    run, other = make_run(np.full((1, 2), 100.0)), make_run(np.full((1, 2), 100.0), run_id="run2")
    with pytest.raises(AnalysisError, match="samples of unknown captures: [0-9a-f]{32}"):
        process_values(run.samples, other.captures)


def test_point_statistics_are_numpy_per_point(make_run: Any) -> None:
    values = np.rint(np.random.default_rng(6).lognormal(9, 0.005, (30, 7)))
    values[3, 2:] = np.nan
    run = make_run(values)
    found = point_statistics(process_values(run.samples, run.captures))
    place = {p: i for i, p in enumerate(run.points["point_id"].to_pylist())}
    for row, point in enumerate(found.keys["point_id"].to_pylist()):
        kept = values[place[point]][~np.isnan(values[place[point]])]
        assert found.processes[row] == len(kept)
        assert found.mean_log[row] == pytest.approx(np.log(kept).mean())
        assert found.variance_log[row] == pytest.approx(np.log(kept).var(ddof=1))
        assert found.median_ns[row] == np.median(kept)
