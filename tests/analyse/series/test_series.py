"""Series over builds: published oracles, the fence, environment events, spikes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tilewatch.data_contracts import schema
from tilewatch.tasks.analyse.series.change_points import best_splits, change_points, split_p_values
from tilewatch.tasks.analyse.series.fence import fence
from tilewatch.tasks.analyse.series.point_history import point_history
from tilewatch.tasks.analyse.series.series import series_table
from tilewatch.tasks.analyse.series.t_scan import t_changes, t_scores
from tilewatch.tasks.analyse.statistics.limits import ChangePointLimits, SeriesLimits, TScanLimits
from tilewatch.tasks.analyse.statistics.spread import between_lease_spread, history_spread, moderated
from tilewatch.tasks.analyse.tables import AnalysisError


def history(values: Any, environment: Any = "device a") -> pa.Table:
    """A point history of one point from ``values``, one run each."""
    runs = len(values)
    same = {
        "evidence": "measured", "agent": "npu", "experiment": "quant_matmul", "arm": "nz", "point_id": "p1",
        "device": "a", "method_hash": "m1",
    }  # fmt: skip
    columns: dict[str, Any] = {name: [value] * runs for name, value in same.items()}
    columns |= {
        "build": [f"b{i:04d}" for i in range(runs)],
        "build_id": [f"id{i:04d}" for i in range(runs)],
        "run_id": [f"run{i:04d}" for i in range(runs)],
        "started_ns": np.arange(runs) * 10**9,
        "environment": [environment] * runs if isinstance(environment, str) else environment,
        "processes": [5] * runs,
        "value_ns": np.asarray(values, dtype=float),
    }
    return pa.table(columns)


def events(table: pa.Table) -> list[tuple[int, str]]:
    return [(r["position"], r["event"]) for r in table.to_pylist() if r["event"] != "none"]


def noisy(count: int, seed: int, spread: float = 0.003) -> Any:
    return 20_000 * np.exp(spread * np.random.default_rng(seed).normal(size=count))


def test_tigerbeetle_cases_are_reproduced_exactly(detectors: Path) -> None:
    oracle = json.loads((detectors / "otava_tigerbeetle.json").read_text())
    values = np.array(oracle["series"], dtype=float)
    for case in oracle["cases"]:
        given = case["params"]
        limits = ChangePointLimits(given["window_len"], given["max_pvalue"], given["min_magnitude"])
        assert change_points([values], limits) == [case["expected"]], case["test"]


def test_perfherder_alerts_are_reproduced(detectors: Path) -> None:
    expected = json.loads((detectors / "perfherder" / "expected.json").read_text())["expected"]
    for name, alerts in expected.items():
        runs = json.loads((detectors / "perfherder" / name).read_text())["test_runs"]
        runs.sort(key=lambda run: run[2])
        (found,) = t_changes([np.array([run[3] for run in runs], dtype=float)])
        assert [runs[i][2] for i in found] == alerts, name


def test_series_of_different_lengths_do_not_disturb_each_other() -> None:
    many = [noisy(n, n) * np.where(np.arange(n) >= n // 2, 1.1, 1.0) for n in (40, 75, 30, 120)]
    assert change_points(many) == [change_points([one])[0] for one in many]
    assert t_changes(many) == [t_changes([one])[0] for one in many]


def test_best_split_is_the_slow_q_of_the_paper() -> None:
    rows = np.random.default_rng(4).normal(size=(6, 14))

    def q(x: Any, y: Any) -> float:
        n, m = len(x), len(y)
        between = 2 / (n + m) * np.abs(x[:, None] - y).sum()
        inner = np.triu(np.abs(x[:, None] - x)).sum() * 2 * m / (n + m) / (n - 1) if n > 1 else 0.0
        outer = np.triu(np.abs(y[:, None] - y)).sum() * 2 * n / (n + m) / (m - 1) if m > 1 else 0.0
        return float(between - inner - outer)

    split, value = best_splits(rows)
    for row, at, best in zip(rows, split, value, strict=True):
        slow = {(t, k): q(row[:t], row[t:k]) for k in range(2, 15) for t in range(1, k)}
        assert max(slow, key=lambda key: slow[key])[0] == at
        assert max(slow.values()) == pytest.approx(best)
    for row, at, p in zip(rows, split, split_p_values(rows, split), strict=True):
        sides = [(s.mean(), s.std(), len(s)) for s in (row[:at], row[at:])]
        assert p == pytest.approx(stats.ttest_ind_from_stats(*sides[0], *sides[1]).pvalue)


def test_the_t_scan_is_the_slow_scan_one_position_at_a_time() -> None:
    limits = TScanLimits()

    def side(values: Any) -> tuple[float, float, int]:
        weights = np.arange(len(values), 0, -1)
        mean = float(np.average(values, weights=weights))
        return mean, sum((values - mean) ** 2) / (len(values) - 1) if len(values) > 1 else 0.0, len(values)

    values = noisy(70, 9) * np.where(np.arange(70) >= 40, 1.02, 1.0)
    (found,), _ = t_scores([values], limits)
    since = 0
    for at in range(1, 70):
        reach = min(max(since, limits.min_back), limits.max_back)
        back, fore = side(values[max(0, at - reach) : at][::-1]), side(values[at : at + limits.fore])
        variance = back[1] / back[2] + fore[1] / fore[2]
        slow = abs(fore[0] - back[0]) / np.sqrt(variance) if variance else np.inf
        assert found[at] == pytest.approx(slow)
        since = 0 if slow > limits.threshold else since + 1


def test_the_spread_of_a_history_is_numpy_over_the_runs_of_one_build() -> None:
    logs = np.random.default_rng(3).normal(0, 0.01, 7)
    rows = history(20_000 * np.exp(logs))
    place = rows.schema.get_field_index("build_id")
    same = rows.set_column(place, "build_id", pa.array(["a"] * 4 + ["b"] * 3))
    (row,) = history_spread(same).to_pylist()
    squares = [3 * np.var(logs[:4], ddof=1), 2 * np.var(logs[4:], ddof=1)]
    assert row["spread_log"] == pytest.approx(np.sqrt(sum(squares) / 5))
    assert row["leases"] == 6
    assert history_spread(rows).num_rows == 0


def test_the_fence_is_the_slow_quartile_rule() -> None:
    values = noisy(60, 2, 0.01)
    nothing = np.full(60, np.nan)
    found = fence(values, np.zeros(60, dtype=np.int64), nothing, nothing)
    deltas = np.abs(np.diff(np.log(values)))
    for at in range(10, 60):
        low, high = np.quantile(deltas[max(0, at - 1 - 30) : at - 1], [0.25, 0.75])
        assert found.fence_log[at] == pytest.approx(max(high + 3 * (high - low), np.log(1.02)))
    assert found.reason[3] == "spread unknown"
    assert found.fence_log[3] == pytest.approx(np.log(1.22))


def test_a_step_in_a_long_series_is_a_step_with_the_means_on_both_sides() -> None:
    values = noisy(80, 1) * np.where(np.arange(80) >= 45, 1.08, 1.0)
    table = series_table(history(values))
    assert table.schema.equals(schema("series"))
    assert events(table) == [(45, "step")]
    assert table["ratio"][45].as_py() == pytest.approx(1.08, abs=0.005)


def test_a_single_spike_is_not_a_step() -> None:
    for count, at in ((80, 40), (80, 75), (15, 11)):
        values = noisy(count, 3)
        values[at] *= 1.5
        assert "step" not in {event for _, event in events(series_table(history(values)))}
    assert events(series_table(history(values))) == [(11, "spike")]


def test_the_newest_build_of_a_long_series_is_held_against_the_fence() -> None:
    values = noisy(60, 5)
    values[-1] *= 1.1
    table = series_table(history(values))
    assert events(table) == [(59, "fence")]
    assert table["fence_reason"][59].as_py() in ("deltas of earlier builds", "relative floor")


def test_an_environment_event_starts_a_segment_and_hides_no_step_behind_it() -> None:
    values = noisy(60, 6) * np.where(np.arange(60) >= 30, 1.5, 1.0)
    table = series_table(history(values, ["device a"] * 30 + ["device b"] * 30))
    assert events(table) == [(30, "environment")]
    assert Counter(table["segment"].to_pylist()) == {0: 30, 1: 30}
    assert table["reference_ns"][30].as_py() is None


def test_simulated_and_measured_values_are_never_one_series() -> None:
    rows = pa.concat_tables([history(noisy(10, 1)), history(1.5 * noisy(10, 2)).set_column(
        0, "evidence", pa.array(["simulated"] * 10)
    )])  # fmt: skip
    table = series_table(rows)
    assert events(table) == []
    assert Counter(table["position"].to_pylist()) == dict.fromkeys(range(10), 2)


def test_a_short_series_without_history_says_that_the_spread_is_unknown() -> None:
    table = series_table(history([20_000, 21_000, 30_000]))
    assert events(table) == [(2, "fence")]
    assert table["fence_reason"][1].as_py() == "spread unknown"


def test_archived_spread_makes_the_fence_of_a_short_series(make_run: Any) -> None:
    def run(i: int, factor: float = 1.0) -> Any:
        shift = np.exp(np.random.default_rng(i).normal(0, 0.01))
        started = make_run(np.full((4, 5), 20_000.0 * shift * factor), run_id=f"r{i:02d}", lease=f"l{i}")
        place = started.runs.schema.get_field_index("started_ns")
        runs = started.runs.set_column(place, started.runs.schema.field("started_ns"), pa.array([i]))
        return type(started)(runs, started.captures, started.points, started.samples, started.alignments)

    archive = [run(i) for i in range(6)]
    spreads = between_lease_spread(archive)
    table = series_table(point_history([*archive, run(6, 1.3)]), spreads=spreads)
    assert {position for position, event in events(table) if event == "fence"} == {6}
    assert set(table.filter(pa.compute.equal(table["position"], 5))["fence_reason"].to_pylist()) == {
        "between-lease A/A spread"
    }


def test_near_a_a_pair_with_its_spread_as_history_stays_inside_the_fence(detectors: Path) -> None:
    """Prints the share of 35,700 points outside the fence, from own and from pooled spread alone."""
    files = [
        detectors / "gemm_tables" / f"h100_sxm_gemm_trtllm_1.3.0rc{n}_gemm_perf.parquet" for n in (10, 20)
    ]
    one, two = (
        f"(SELECT m, n, k, median(latency) * 1e6 AS ns FROM '{f}' WHERE gemm_dtype = 'bfloat16' GROUP BY ALL)"
        for f in files
    )
    pair = duckdb.sql(f"SELECT a.ns AS a, b.ns AS b FROM {one} a JOIN {two} b USING (m, n, k)").fetchnumpy()
    count = len(pair["a"])
    own = np.abs(np.log(pair["b"] / pair["a"])) / np.sqrt(2)
    pooled = np.full(count, np.sqrt(np.mean(own**2)))
    text = [str(i) for i in range(count)]
    same = {name: ["x"] * count for name in ("device", "method_hash", "experiment", "arm")}
    spreads = pa.table(
        {**same, "point_id": text, "leases": [2] * count, "spread_log": own, "pooled_spread_log": pooled}
    )
    held = moderated(spreads)
    flat = np.stack([pair["a"], pair["b"]], axis=1).ravel()
    first = np.repeat(np.arange(count) * 2, 2)
    shares = {}
    for name, spread in (("own", held["spread"].to_numpy()), ("pooled", pooled)):
        found = fence(flat, first, np.repeat(spread, 2), np.ones(2 * count))
        shares[name] = float(found.outside.sum() / count)
        print(f"near A/A pair, {count} points, {name} spread: {shares[name]:.3%} outside the fence")
    assert count == 35_700
    assert shares["own"] <= 0.001


def test_series_do_not_depend_on_row_order() -> None:
    rows = history(noisy(50, 8))
    mixed = rows.take(np.random.default_rng(1).permutation(50))
    assert series_table(rows).equals(series_table(mixed))


def test_false_events_over_unchanged_builds_are_rare() -> None:
    """Prints a table: share of 200 unchanged series of 100 builds with any step, by kind of noise."""
    draw = np.random.default_rng(11)
    size = (200, 100)
    correlated = np.zeros(size)
    for i in range(1, 100):
        correlated[:, i] = 0.5 * correlated[:, i - 1] + draw.normal(size=200)
    kinds = {
        "gaussian": draw.normal(size=size),
        "heavy-tailed t(3)": draw.standard_t(3, size=size),
        "AR(0.5)": correlated,
        "two-mode": 2.0 * (draw.random(size) < 0.3) + 0.3 * draw.normal(size=size),
    }
    print(f"{'noise (1 %)':18s} steps  candidates")
    for name, noise in kinds.items():
        series = list(20_000 * np.exp(0.01 * noise))
        divided, scanned = change_points(series), t_changes(series)
        agree = SeriesLimits().agreement
        steps = [
            any(abs(p - s) <= agree for p in a for s in b) for a, b in zip(divided, scanned, strict=True)
        ]
        print(f"{name:18s} {np.mean(steps):5.1%} {np.mean([bool(a) for a in divided]):10.1%}")
        assert np.mean(steps) <= 0.02


def test_a_history_without_a_needed_column_is_an_error() -> None:
    with pytest.raises(AnalysisError, match="point history lacks environment"):
        series_table(history([1.0]).drop_columns(["environment"]))
