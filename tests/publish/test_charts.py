"""What the charts draw: lines, ranges, bands, cliffs and break-even bars."""

from __future__ import annotations

import json

import pytest

from tilewatch.tasks.publish.run_report.bands import Band, bands, belongs
from tilewatch.tasks.publish.run_report.break_even import break_even_chart, stretches
from tilewatch.tasks.publish.run_report.charts import curve_chart, duration_ticks, tick_values


def point(axis_value, value_ns=1000.0, arm="nz", **changes):
    row = {
        "experiment": "e",
        "source": "",
        "arm": arm,
        "axis": "m",
        "axis_value": axis_value,
        "point_id": f"p{axis_value}",
        "value_ns": value_ns,
        "low_ns": value_ns and value_ns * 0.9,
        "high_ns": value_ns and value_ns * 1.2,
        "processes": 5,
    }
    return {**row, **changes}


def tiling(axis_value, base_m, status="aligned"):
    names = ("base_n", "base_k", "stream_k", "used_core_num", "tiling_key")
    return {
        "experiment": "e",
        "arm": "nz",
        "point_id": f"p{axis_value}",
        "status": status,
        "base_m": base_m,
        **dict.fromkeys(names),
    }


def test_each_arm_is_a_line_of_its_own_dash_and_marker():
    figure = json.loads(curve_chart([point(1), point(2), point(1, arm="nd"), point(2, arm="nd")], [], []))
    nz, nd = figure["data"]
    assert (nz["name"], nz["x"], nz["y"]) == ("nz", [1, 2], [1000.0, 1000.0])
    assert nz["line"]["dash"] != nd["line"]["dash"] and nz["marker"]["symbol"] != nd["marker"]["symbol"]
    assert figure["layout"]["yaxis"]["ticktext"] == ["800 ns", "1 µs", "1.5 µs"]
    assert (figure["layout"]["xaxis"]["type"], figure["layout"]["yaxis"]["type"]) == ("log", "log")


def test_the_bar_of_a_point_reaches_from_the_smallest_to_the_largest_process():
    (trace,) = json.loads(curve_chart([point(4)], [], []))["data"]
    assert trace["error_y"]["array"] == pytest.approx([200])
    assert trace["error_y"]["arrayminus"] == pytest.approx([100])


def test_a_point_without_a_value_is_not_drawn():
    (trace,) = json.loads(curve_chart([point(1), point(2, value_ns=None)], [], []))["data"]
    assert trace["x"] == [1]


def test_cliffs_and_bands_are_marked():
    cliff = {"before": 128, "after": 129, "class": "step", "ratio": 1.78}
    figure = json.loads(curve_chart([point(128), point(129)], [Band(1, 128.5, "base_m 128")], [cliff]))
    assert [shape["type"] for shape in figure["layout"]["shapes"]] == ["rect", "line"]
    assert [a["text"] for a in figure["layout"]["annotations"]] == ["base_m 128", "step ×1.78"]


def test_labels_cannot_carry_markup_into_a_chart():
    text = curve_chart([point(1, arm="<script>x</script>")], [], [])
    assert "<script>" not in text and "&lt;script&gt;" in text


def test_bands_meet_half_way_where_the_observed_tiling_changes():
    points = [point(m) for m in (1, 64, 128, 256)]
    found = bands(points, [tiling(1, 128), tiling(64, 128), tiling(128, 128), tiling(256, 256)])
    assert [(band.label, round(band.start, 1), round(band.end, 1)) for band in found] == [
        ("base_m 128", 0.8, 181.0),
        ("base_m 256", 181.0, 307.2),
    ]


def test_a_point_without_observed_tiling_belongs_to_no_band():
    points = [point(m) for m in (1, 2, 4)]
    found = bands(points, [tiling(1, 128), tiling(2, None, "unaligned"), tiling(4, 64)])
    assert [(band.label, round(band.end, 2)) for band in found] == [("base_m 128", 1.41), ("base_m 64", 4.8)]


def test_one_single_tiling_gives_no_bands():
    assert bands([point(1), point(2)], [tiling(1, 128), tiling(2, 128)]) == []


def test_a_cliff_belongs_to_the_chart_that_holds_its_keys_fixed(cliffs):
    (cliff,) = cliffs.to_pylist()
    assert belongs(cliff, "grouped_matmul", "w13 K4096 N4096 padded uniform 4 experts")
    assert not belongs(cliff, "grouped_matmul", "w13 K4096 N4096 exact uniform 4 experts")
    assert not belongs(cliff, "quant_matmul", "w13 K4096 N4096")


def test_axis_labels_keep_apart_on_a_logarithmic_axis():
    assert tick_values([1, 8, 64, 96, 127, 128, 129, 160, 256]) == [1, 8, 64, 128, 256]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(3, 3_000, [5, 10, 20, 50, 100, 200, 500, 1_000, 2_000]), (3, 15, [3, 4, 5, 6, 8, 10, 15])],
)
def test_time_labels_are_round_and_enough(low, high, ticks):
    assert duration_ticks(low, high) == pytest.approx(ticks)


def test_break_even_stretches_join_equal_outcomes_and_meet_half_way(ledger):
    found = [s for s in stretches(ledger.to_pylist()) if s.line.startswith("wq_a")]
    assert [s.outcome for s in found] == [
        "bf16_wins",
        "no_difference",
        "int8_wins",
        "no_difference",
        "bf16_wins",
        "unknown",
    ]
    assert [s.end for s in found[:-1]] == [s.start for s in found[1:]]
    assert found[2].start == pytest.approx(2**2.5) and found[2].end == pytest.approx(2**4.5)


def test_every_outcome_has_its_own_bar_pattern(ledger):
    traces = json.loads(break_even_chart(ledger.to_pylist()))["data"]
    looks = {(trace["marker"]["color"], trace["marker"]["pattern"]["shape"]) for trace in traces}
    assert len(traces) == len(looks) == 4
