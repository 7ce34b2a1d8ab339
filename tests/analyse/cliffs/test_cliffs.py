"""Cliffs along an axis: planted steps, combs, spikes and drops, and the public reference triples."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from tests.benchmarks import bench_cliffs
from tilewatch.tasks.analyse.cliffs.cliffs import find_cliffs
from tilewatch.tasks.analyse.cliffs.curves import Curves, curves, grouped_median
from tilewatch.tasks.analyse.cliffs.explain import cliff_table
from tilewatch.tasks.analyse.cliffs.refine import measure_next, open_gaps
from tilewatch.tasks.analyse.cliffs.steps import steps
from tilewatch.tasks.analyse.statistics.limits import CliffLimits
from tilewatch.tasks.analyse.tables import AnalysisError

FILES = {
    "h100_trtllm_1.3.0rc20": "h100_sxm_gemm_trtllm_1.3.0rc20_gemm_perf",
    "h100_vllm_0.19.0": "h100_sxm_gemm_vllm_0.19.0_gemm_perf",
}


def measured(make_run: Any, axis: list[int], ideal_ns: Any, seed: int = 1, noise: float = 0.004) -> Any:
    """A run along ``axis`` with six noisy processes a point."""
    draw = np.random.default_rng(seed)
    values = np.asarray(ideal_ns, dtype=float)[:, None] * np.exp(noise * draw.normal(size=(len(axis), 6)))
    return make_run(values, axis_values=axis)


def found(tables: Any) -> list[tuple[int, int, str]]:
    return [(c.before, c.after, c.kind) for c in find_cliffs(curves(tables))]


def test_a_planted_step_is_found_at_its_place_and_classed(make_run: Any) -> None:
    axis = list(range(120, 150))
    ideal = [20_000 * (1.78 if m > 128 else 1.0) for m in axis]
    assert found(measured(make_run, axis, ideal)) == [(128, 129, "step")]


def test_a_step_down_is_a_drop(make_run: Any) -> None:
    axis = list(range(120, 150))
    ideal = [20_000 * (0.8 if m > 128 else 1.0) for m in axis]
    assert found(measured(make_run, axis, ideal)) == [(128, 129, "drop")]


def test_an_alignment_comb_is_one_comb_a_tooth_and_its_falls_are_no_cliffs(make_run: Any) -> None:
    axis = [16, 17, 32, 33, 48, 49, 64, 65, 80]
    ideal = [20_000 * (1.25 if m % 16 else 1.0) for m in axis]
    assert found(measured(make_run, axis, ideal)) == [(m, m + 1, "comb") for m in (16, 32, 48, 64)]


def test_a_comb_on_a_dense_axis_rises_once_a_tooth(make_run: Any) -> None:
    axis = list(range(64, 97))
    ideal = [20_000 * (1.25 if m % 16 else 1.0) for m in axis]
    assert found(measured(make_run, axis, ideal)) == [(64, 65, "comb"), (80, 81, "comb")]


def test_a_single_point_above_its_neighbours_is_a_spike(make_run: Any) -> None:
    axis = list(range(40, 60))
    ideal = [20_000 * (1.3 if m == 50 else 1.0) for m in axis]
    assert found(measured(make_run, axis, ideal)) == [(49, 50, "spike")]


@pytest.mark.parametrize("period", [8, 16, 32, 64, 128])
def test_a_staircase_that_never_returns_is_steps(make_run: Any, period: int) -> None:
    axis = list(range(1, 257))
    ideal = [20_000 + 10_000 * (-(-m // period)) for m in axis]
    planted = [(m, m + 1, "step") for m in range(period, 256, period) if m + 16 <= 256]
    assert found(measured(make_run, axis, ideal, noise=0.0005))[: len(planted)] == planted


def test_a_staircase_on_an_uneven_axis_is_steps_where_three_points_show_it(make_run: Any) -> None:
    axis = [
        1,
        16,
        32,
        48,
        64,
        96,
        127,
        128,
        129,
        160,
        192,
        255,
        256,
        257,
        384,
        511,
        512,
        513,
        768,
        1024,
        2048,
    ]
    cliffs = found(measured(make_run, axis, [20_000 * -(-m // 128) for m in axis], noise=0.0005))
    assert [c for c in cliffs if c[1] - c[0] == 1] == [(m, m + 1, "step") for m in (128, 256, 512)]


@pytest.mark.parametrize("period", [8, 16, 32, 64, 128])
def test_a_comb_of_any_period_is_a_comb_at_its_rises(make_run: Any, period: int) -> None:
    axis = list(range(1, 560))
    ideal = [20_000 * (1.2 if m % period else 1.0) for m in axis]
    expected = [(m, m + 1, "comb") for m in range(period, 513, period)]
    assert [c for c in found(measured(make_run, axis, ideal, noise=0.0005)) if c[0] <= 512] == expected


def test_a_stretch_of_equal_values_is_not_a_cliff_however_its_neighbours_grow(make_run: Any) -> None:
    axis = [1, 16, 64, 127, 128, 129, 160]
    values = [100_000, 184_800, 184_800, 290_000, 291_000, 420_000, 430_000]
    assert [
        (b, a) for b, a, _ in found(measured(make_run, axis, values, noise=0.0002)) if (b, a) == (16, 64)
    ] == []


def test_growth_of_work_is_no_cliff_on_dense_and_on_doubling_axes(make_run: Any) -> None:
    for axis in (list(range(1, 129)), [1, 2, 4, 8, 16, 32, 64, 128, 256]):
        for ideal in (
            [9_000 + 150 * m for m in axis],
            [max(12_000, 300 * m) for m in axis],
            [5_000 * m**0.7 for m in axis],
        ):
            assert found(measured(make_run, axis, ideal)) == []


def test_a_step_inside_a_gap_is_unrefined_and_asks_for_its_ends_and_middle(make_run: Any) -> None:
    axis = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    ideal = [20_000 * (1.78 if m > 32 else 1.0) for m in axis]
    (cliff,) = find_cliffs(curves(measured(make_run, axis, ideal)))
    assert (cliff.before, cliff.after, cliff.kind) == (32, 64, "unrefined")
    assert cliff.measure_next == (33, 48, 49, 63)


def test_a_rise_in_the_last_gap_may_be_growth_so_it_is_no_cliff_but_asks_to_be_refined(make_run: Any) -> None:
    axis = [1, 2, 4, 8, 16, 32, 64, 128]
    tables = measured(make_run, axis, [20_000 * (1.5 if m > 64 else 1.0) for m in axis])
    assert found(tables) == []
    assert [values for _, values in open_gaps(curves(tables))] == [(65, 96, 97, 127)]
    flat = measured(make_run, axis, [20_000 for _ in axis])
    assert open_gaps(curves(flat)) == []


def test_the_axis_of_the_grouped_experiment_shows_a_step_and_no_knee(make_run: Any) -> None:
    axis = [1, 2, 4, 8, 16, 32, 64, 96, 127, 128, 129, 160, 192, 256]
    for rise in (1.1, 1.3, 1.78):
        for work in (lambda m: 15_000, lambda m: 9_000 + 40 * m, lambda m: max(15_000, 160 * m)):
            ideal = [work(m) * (rise if m > 128 else 1.0) for m in axis]
            assert found(measured(make_run, axis, ideal)) == [(128, 129, "step")]


def test_a_boundary_asks_for_the_value_before_and_the_next_aligned_one() -> None:
    assert measure_next(128, 129, np.array([96, 128, 129, 160])) == (127, 144)
    assert measure_next(128, 129, np.array([127, 128, 129, 144])) == ()


def test_a_step_at_the_end_of_the_axis_is_unrefined(make_run: Any) -> None:
    axis = [96, 112, 127, 128, 129]
    ideal = [20_000 * (1.5 if m > 128 else 1.0) for m in axis]
    (cliff,) = find_cliffs(curves(measured(make_run, axis, ideal)))
    assert (cliff.kind, cliff.measure_next) == ("unrefined", (144,))


def test_single_values_show_no_noise_so_only_plateaus_or_a_certain_rise_make_a_cliff(make_run: Any) -> None:
    long = np.array([[20_000 * (1.10 if m > 128 else 1.0)] for m in range(110, 150)])
    assert found(make_run(long, axis_values=list(range(110, 150)))) == [(128, 129, "step")]
    axis = [96, 104, 112, 120, 127, 128, 129, 130, 144, 152]
    for rise, expected in ((1.10, []), (1.2, [(128, 129, "step")])):
        ideal = np.array([[20_000 * (rise if m > 128 else 1.0)] for m in axis])
        assert found(make_run(ideal, axis_values=axis)) == expected


def test_every_planted_cliff_is_found_and_noise_makes_none(make_run: Any) -> None:
    """Prints a table: found and false cliffs in 40 dense curves by size of the step."""
    axis = list(range(100, 164))
    print("rise  found  false (of 40 curves × 63 steps, 6 processes, noise 1 %)")
    for rise, least in ((1.0, 0), (1.05, 24), (1.1, 40), (1.3, 40)):
        ideal = np.array([20_000 * (rise if m > 128 else 1.0) for m in axis])
        hits = false = 0
        for seed in range(40):
            cliffs = found(measured(make_run, axis, ideal, seed, 0.01))
            hits += (128, 129, "step") in cliffs
            false += sum(c[:2] != (128, 129) for c in cliffs)
        print(f"{rise:4.2f} {hits:6d} {false:6d}")
        assert hits >= least
        assert false <= 2


@pytest.mark.parametrize("axis", [bench_cliffs.DENSE, bench_cliffs.SPARSE], ids=["dense", "sparse"])
def test_a_curve_without_a_cliff_shows_one_in_at_most_a_hundredth_of_cases(axis: Any) -> None:
    curves_without = bench_cliffs.drawn(axis, lambda m: 20_000.0, 0.02, 5, 1_000, seed=11)
    _, false = bench_cliffs.shares(curves_without, len(axis), set())
    assert false <= 0.01 + 3 * (0.01 * 0.99 / 1_000) ** 0.5


def test_a_step_of_5_percent_between_noisy_plateaus_is_found_by_the_points_around_it() -> None:
    noisy = bench_cliffs.drawn(bench_cliffs.DENSE, lambda m: 20_000 * (1.05 if m > 128 else 1), 0.02, 20, 200)
    recall, _ = bench_cliffs.shares(noisy, 256, {(128, 129)})
    assert recall >= 0.95
    (cliff,) = find_cliffs(
        bench_cliffs.drawn(bench_cliffs.DENSE, lambda m: 20_000 * (1.05 if m > 128 else 1), 0.02, 20, 1)
    )
    assert cliff.kind == "step" and cliff.ratio == pytest.approx(cliff.after_ns / cliff.before_ns)


def test_cliffs_do_not_depend_on_row_order(make_run: Any, shuffle: Any) -> None:
    axis = list(range(120, 150))
    tables = measured(make_run, axis, [20_000 * (1.78 if m > 128 else 1.0) for m in axis])
    assert cliff_table(tables).equals(cliff_table(shuffle(tables, 7)))


def test_two_points_at_one_axis_value_are_an_error_that_names_the_curve(make_run: Any) -> None:
    tables = make_run(np.full((3, 5), 20_000.0), axis_values=[8, 16, 32], point={"axis_value": [8, 16, 16]})
    with pytest.raises(AnalysisError, match="quant_matmul wq_a K4096 N1024 .* two points at m=16"):
        curves(tables)


def test_the_trend_of_a_step_is_the_slow_weighted_median_of_its_neighbours() -> None:
    draw, limits = np.random.default_rng(7), CliffLimits()
    axis = np.cumsum(draw.integers(1, 9, 30))
    values = 20_000 * np.exp(draw.normal(0, 0.02, 30)) + 50 * axis
    found = steps(_flat(axis, values, np.zeros(30, dtype=np.int64)))
    width, slope = np.diff(axis).astype(float), np.diff(values) / np.diff(axis)

    def side(at: int, direction: int) -> float:
        taken: list[int] = []
        for count in range(1, limits.most_neighbours + 1):
            there = at + direction * count
            if 0 <= there < 29 and (count <= limits.neighbours or width[taken].sum() < width[at]):
                taken.append(there)
        taken.sort(key=lambda i: slope[i])
        reached = np.cumsum(width[taken])
        return float(slope[taken][np.flatnonzero(reached >= reached[-1] / 2)[0]])

    for at in range(1, 28):
        low, high = sorted([side(at, -1), side(at, 1)])
        trend = min(max(slope[at], low), high)
        expected = max(1 + trend * width[at] / values[at], 0.5)
        assert found.trend_ratio[at] == pytest.approx(expected)


def test_grouped_median_is_numpy_median_per_group() -> None:
    draw = np.random.default_rng(3)
    group, values = draw.integers(0, 9, 400), draw.normal(size=400)
    values[draw.random(400) < 0.2] = np.nan
    expected = np.array([np.nanmedian(values[group == g]) for g in group])
    np.testing.assert_allclose(grouped_median(values, group), expected)


def _flat(axis: Any, values: Any, index: Any) -> Curves:
    import pyarrow as pa

    return Curves(pa.table({}), index, axis, values, np.full(len(values), np.nan))


def _reference(detectors: Path) -> list[dict[str, Any]]:
    path = detectors / "cliff_reference_points.tsv"
    return duckdb.sql(f"FROM read_csv('{path}', delim='\t')").to_arrow_table().to_pylist()


def _kind(kind: str) -> str:
    return "comb_or_spike" if kind in ("comb", "spike") else kind


def _agreement(reference: list[dict[str, Any]], labels: list[str]) -> float:
    clear = [r["ratio_hi_lo"] > 1.3 or r["ratio_hi_lo"] < 1.05 for r in reference]
    same = [r["label"] == label for r, label, c in zip(reference, labels, clear, strict=True) if c]
    return float(np.mean(same))


def test_reference_triples_alone_agree(detectors: Path) -> None:
    reference = _reference(detectors)
    axis = np.array([[r["m_lo"], r["m_hi"], r["m_next"]] for r in reference]).ravel()
    values = 1e3 * np.array([[r["us_lo"], r["us_hi"], r["us_next"]] for r in reference]).ravel()
    triples = _flat(axis, values, np.repeat(np.arange(len(reference)), 3))
    kinds = {c.low // 3: _kind(c.kind) for c in find_cliffs(triples) if c.low % 3 == 0}
    agreement = _agreement(reference, [kinds.get(i, "flat") for i in range(len(reference))])
    print(f"agreement on {len(reference)} triples: {agreement:.1%}")
    assert agreement >= 0.95


def test_reference_triples_inside_whole_curves_agree_and_controls_show_no_steps(detectors: Path) -> None:
    kinds: dict[tuple[str, str, int], str] = {}
    controls: Counter[tuple[str, str, bool]] = Counter()
    for series, name in FILES.items():
        table = duckdb.sql(
            "SELECT gemm_dtype || '/' || n || '/' || k AS curve, m, median(latency) * 1e6 AS ns "
            f"FROM '{detectors / 'gemm_tables' / name}.parquet' GROUP BY ALL ORDER BY curve, m"
        ).fetchnumpy()
        names, index = np.unique(table["curve"].astype(str), return_inverse=True)
        whole = _flat(table["m"].astype(np.int64), table["ns"].astype(float), index.astype(np.int64))
        here = {(series, str(names[whole.index[c.low]]), c.before): c.kind for c in find_cliffs(whole)}
        kinds |= here
        for curve in names:
            for before in (80, 160, 192):
                step = here.get((series, str(curve), before)) == "step"
                controls[series, str(curve).split("/")[0], step] += 1
    reference = _reference(detectors)
    labels = [
        _kind(kinds.get((r["series"], f"{r['gemm_dtype']}/{r['n']}/{r['k']}", r["m_lo"]), "flat"))
        for r in reference
    ]
    agreement = _agreement(reference, labels)
    print(f"agreement inside whole curves: {agreement:.1%}")
    assert agreement >= 0.95
    for series, dtype in (
        ("h100_trtllm_1.3.0rc20", "fp8"),
        ("h100_trtllm_1.3.0rc20", "fp8_block"),
        ("h100_vllm_0.19.0", "fp8"),
    ):
        share = controls[series, dtype, True] / (
            controls[series, dtype, True] + controls[series, dtype, False]
        )
        print(f"steps at control boundaries, {series} {dtype}: {share:.2%}")
        assert share <= 0.02
