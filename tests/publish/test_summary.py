"""Sweeps and comparisons as sentences and small tables."""

from __future__ import annotations

import types

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tilewatch.tasks.publish.comparison_report.causes import cause_of
from tilewatch.tasks.publish.run_report.curves import curve_points
from tilewatch.tasks.publish.summary import comparison_summary, sweep_sentence, sweep_summary, worst_first

TIMED = ("runs", "captures", "points", "samples")


def test_a_point_value_is_the_median_of_process_medians_with_their_range(cpu_sweep):
    curves = curve_points(*(cpu_sweep[name] for name in TIMED)).to_pylist()
    (row,) = [c for c in curves if (c["point_id"], c["arm"]) == ("quant_matmul-wq_a-64", "bf16")]
    middle = 1.3 * (20_000 + 900 * 64)
    assert row["value_ns"] == pytest.approx(middle, abs=1)
    assert (row["low_ns"], row["high_ns"]) == pytest.approx((middle * 0.995, middle * 1.005), abs=1)
    assert (row["processes"], row["curve"], row["source"]) == (3, "wq_a K4096 N1024", "")


def test_a_missing_point_stays_in_its_curve_without_a_value(cpu_sweep):
    curves = curve_points(*(cpu_sweep[name] for name in TIMED)).to_pylist()
    (row,) = [c for c in curves if (c["point_id"], c["arm"]) == ("quant_matmul-wkv-128", "bf16")]
    assert (row["value_ns"], row["processes"], row["status"]) == (None, 0, "missing")


def test_two_builds_are_told_apart_by_their_label(two_simulated_builds):
    curves = curve_points(*(two_simulated_builds[name] for name in TIMED))
    assert curves["source"].unique().to_pylist() == ["cann-8.2", "cann-8.3"]


def test_control_processes_are_no_part_of_a_point_value(cpu_sweep):
    tables = dict(cpu_sweep)
    for name in ("captures", "samples"):
        roles = pc.if_else(pc.equal(tables[name]["process_index"], 2), "control", "main")
        position = tables[name].column_names.index("role")
        tables[name] = tables[name].set_column(position, "role", roles)
    curves = curve_points(*(tables[name] for name in TIMED))
    assert max(curves["processes"].to_pylist()) == 2


def test_the_sweep_table_has_a_row_for_each_curve_and_arm(cpu_sweep):
    rows = sweep_summary(*(cpu_sweep[name] for name in TIMED)).to_pylist()
    assert len(rows) == 2 * 2 + 3 * 3 + 2 + 2
    (row,) = [r for r in rows if (r["experiment"], r["curve"], r["arm"]) == QUANT_MATMUL_WKV_BF16]
    assert (row["points"], row["timed_points"], row["missing"], row["processes"]) == (8, 7, 1, 3)
    assert (row["first_axis_value"], row["last_axis_value"]) == (1, 64)
    assert row["first_ns"] == pytest.approx(1.3 * 20_900, abs=1)
    assert row["last_ns"] == pytest.approx(1.3 * 77_600, abs=1)


QUANT_MATMUL_WKV_BF16 = ("quant_matmul", "wkv K4096 N512", "bf16")


def test_an_arm_that_is_not_timed_has_no_times(cpu_sweep):
    rows = sweep_summary(*(cpu_sweep[name] for name in TIMED)).to_pylist()
    untimed = [r for r in rows if (r["experiment"], r["arm"]) == ("dynamic_quant", "tuple_input")]
    assert [(r["timed_points"], r["first_ns"], r["processes"]) for r in untimed] == [(0, None, None)] * 2


def test_the_sweep_sentence_says_what_on_what_and_how_much(cpu_sweep):
    assert sweep_sentence(cpu_sweep["runs"], cpu_sweep["points"]) == (
        "Measured dynamic_quant, grouped_matmul, quant_matmul, weight_format on Invented CPU, 2 cores with "
        "build cpu-torch2.13.0: 122 points in 27 processes, 4 samples."
    )


def test_verdicts_are_counted_and_the_worst_row_leads_the_sentence(comparison):
    summary = comparison_summary(comparison)
    assert summary.counts == {"SLOWER": 1, "FASTER": 1, "MISSING": 1, "UNDECIDED": 1, "SAME": 110}
    assert [row["verdict"] for row in summary.worst[:4]] == ["SLOWER", "FASTER", "MISSING", "UNDECIDED"]
    assert summary.sentence == (
        "Not comparable: 114 points armed, 113 compared, 0 refused, 1 missing (invented). "
        "quant_matmul wq_a M 64, arm standalone is SLOWER: ×1.20 (95 % interval ×1.19 to ×1.21), "
        "77.6 µs in cann-8.2, 93.1 µs in cann-8.3."
    )


def test_points_with_nothing_to_time_are_in_no_count(comparison):
    same = comparison.filter(pc.equal(comparison["verdict"], "SAME"))
    nothing = same.slice(0, 3)
    for name, value in (("verdict", "NOT_APPLICABLE"), ("base_ns", None), ("q_value", None)):
        place = nothing.column_names.index(name)
        field = nothing.schema.field(name)
        nothing = nothing.set_column(place, field, pa.array([value] * 3, field.type))
    summary = comparison_summary(pa.concat_tables([same, nothing]))
    assert sum(summary.counts.values()) == summary.coverage.armed == summary.coverage.compared == 110


def test_the_cause_of_several_components_is_not_separable_and_a_tiling_change_is_one_all_the_same(comparison):
    slower = comparison.filter(pc.equal(comparison["verdict"], "SLOWER")).to_pylist()[0]
    tiled = types.SimpleNamespace(of=lambda _: "base_m 128 → 64")
    same = types.SimpleNamespace(of=lambda _: "")
    assert (
        cause_of(slower, tiled)
        == "cause: tiling changed, base_m 128 → 64; changed component cann: 8.2 -> 8.3"
    )
    two = {**slower, "cause_separable": False, "changed_components": ["cann: 1 -> 2", "driver: 3 -> 4"]}
    assert cause_of(two, same) == (
        "no tiling change observed; changed components cann: 1 -> 2, driver: 3 -> 4, "
        "between which the cause is not separable"
    )
    assert "look at the machine" in cause_of({**slower, "changed_components": []}, same)


def test_without_a_slower_row_the_sentence_says_so(comparison):
    faster = comparison.filter(pc.not_equal(comparison["verdict"], "SLOWER"))
    assert ". No compared point got slower. quant_matmul wkv M 8" in comparison_summary(faster).sentence
    same = comparison.filter(pc.is_in(comparison["verdict"], pc.unique(comparison["verdict"]).slice(0, 1)))
    assert comparison_summary(same).sentence == (
        "110 points armed, 110 compared, 0 refused, 0 missing. "
        "No compared point of cann-8.3 got slower or faster than in cann-8.2: 110 SAME."
    )
    assert comparison_summary(comparison.slice(0, 0)).sentence == "Nothing was compared."


def test_arms_are_named_where_arms_are_compared(comparison):
    slower = comparison.filter(pc.equal(comparison["verdict"], "SLOWER"))
    for column, value in (("compared_by", "arm"), ("base_arm", "nz"), ("candidate_arm", "nd")):
        slower = slower.set_column(slower.column_names.index(column), column, [[value]])
    sentence = comparison_summary(slower).sentence
    assert "arm nd against nz is SLOWER" in sentence
    assert "77.6 µs with nz, 93.1 µs with nd" in sentence


def test_the_order_of_rows_does_not_matter(comparison):
    backwards = comparison.take(list(range(comparison.num_rows))[::-1])
    assert worst_first(backwards).equals(worst_first(comparison))
