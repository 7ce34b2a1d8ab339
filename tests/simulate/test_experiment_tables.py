"""The four experiments' own tables over two simulated builds: every number with its evidence, or a reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.simulate.conftest import Simulate, sides
from tilewatch.tasks.analyse.savings.experiment_tables import (
    core_counts,
    format_effect,
    grouped_points,
    tiling_stretches,
)
from tilewatch.tasks.analyse.tables import RunTables, join
from tilewatch.tasks.plan.experiment import Experiment
from tilewatch.tasks.publish.run_report.agreement import agreement, agreement_sections
from tilewatch.tasks.publish.run_report.content import ReportContent
from tilewatch.tasks.publish.run_report.experiment_sections import sections
from tilewatch.tasks.publish.run_report.predicted import predicted_charts, predicted_points
from tilewatch.tasks.simulate.builds import simulated_build

OLD, NEW = "sim-cann8.5.0", "sim-cann9.0.0"


@pytest.fixture(scope="module")
def both(simulate: Simulate, experiments: dict[str, Experiment]) -> RunTables:
    chosen = list(experiments.values())
    runs = [simulate(simulated_build(name), chosen, run_id=f"01{name}") for name in (OLD, NEW)]
    return join([sides(tables) for tables in runs])


def rows(table: pa.Table, **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in table.to_pylist() if all(row[name] == value for name, value in wanted.items())]


def test_cores_are_those_of_the_log_beside_the_possible_and_the_predicted_ones(both: RunTables) -> None:
    found = core_counts(both, predicted_points(both.runs, both.points))
    for build, cores in ((OLD, 16), (NEW, 4)):
        (row,) = rows(found, build=build, arm="standalone", linear="wq_a", m=16)
        assert (row["cores"], row["cores_source"], row["one_row_a_core"]) == (cores, "tiling log", 16)
        assert row["predicted_cores"] == cores
    (full,) = rows(found, build=OLD, arm="standalone", linear="wq_a", m=64)
    assert (full["cores"], full["one_row_a_core"]) == (48, 48)


def test_without_a_known_platform_nothing_is_said_of_possible_cores(both: RunTables) -> None:
    row = rows(core_counts(both), build=OLD, arm="standalone", linear="wq_a", m=16)[0]
    assert (row["cores"], row["one_row_a_core"], row["predicted_cores"]) == (16, None, None)


def test_tuple_input_has_no_time_and_no_dynamic_quant_kernel(both: RunTables) -> None:
    found = rows(core_counts(both), arm="tuple_input")
    assert len(found) == 28
    for row in found:
        assert (row["value_ns"], row["null_reason"], row["cores"]) == (None, "tuple_input", None)
        assert (row["dynamic_quant_kernel_count"], row["calls"]) == (0, 25)


def test_the_structure_of_a_curve_changes_where_base_blocks_do(both: RunTables) -> None:
    found = rows(tiling_stretches(both), build=OLD, experiment="B", arm="tuple_input", linear="wq_a")
    assert [(r["first"], r["last"], r["base_m"], r["m_cnt"], r["n_cnt"]) for r in found] == [
        (1, 16, 16, 1, 16), (32, 32, 32, 1, 16), (64, 64, 64, 1, 16), (128, 128, 128, 1, 16),
    ]  # fmt: skip


def test_nz_against_nd_is_a_percentage_with_its_proof_in_the_row(both: RunTables) -> None:
    end_to_end = {
        "build": OLD, "compared_by": "arm", "metric": "tpot_ns", "base_arm": "w8a8_nz",
        "candidate_arm": "w8a8_nd", "load": "64+16 tokens × 4", "ratio": 1.25, "ratio_low": 1.2,
        "ratio_high": 1.3,
    }  # fmt: skip
    found = format_effect(both, pa.Table.from_pylist([end_to_end]))
    (row,) = rows(found, build=OLD, linear="wq_b", m=16)
    assert row["serving"] == "-20.0 % (-23.1 to -16.7) at 64+16 tokens × 4"
    assert {other["serving"] for other in rows(found, build=NEW)} == {None}
    assert row["nz_kernel_ns"] == pytest.approx(row["nz_ns"], rel=0.05)
    assert -17.5 < row["nz_percent"] < -15.5 and row["verdict"] == "FASTER"
    assert (row["nd_format"], row["nz_format"]) == ("ND", "FRACTAL_NZ")
    assert (row["nd_kernel_format"], row["nz_kernel_format"]) == ("ND", "FRACTAL_NZ")
    assert row["nd_operator"] == row["nz_operator"] == "aclnnQuantMatmulV4"
    assert (row["nd_processes"], row["nz_processes"]) == (5, 5)
    assert row["layer_ns"] > row["nz_ns"]


def test_without_the_proof_there_is_no_percentage(both: RunTables) -> None:
    position = both.points.column_names.index("weight_format")
    silently_nd = pa.array(["ND"] * both.points.num_rows, pa.string())
    points = both.points.set_column(position, both.points.schema.field(position), silently_nd)
    found = rows(format_effect(replace(both, points=points)))
    assert {row["nz_percent"] for row in found} == {None}
    assert all("requested FRACTAL_NZ, proved ND" in row["not_proved"] for row in found)


def test_grouped_points_carry_their_rows_on_experts_and_step_after_128(both: RunTables) -> None:
    found = grouped_points(both)
    key = {"build": OLD, "arm": "int8", "allocation_regime": "padded"}
    (uniform,) = rows(found, **key, group_shape="uniform", m_e=129)
    assert uniform["histogram"] == "16 × 129" and uniform["empty_ratio"] == 0.0
    assert 1.5 < uniform["over_previous"] < 1.7
    assert (uniform["workspace_bytes"], uniform["aiv_aic_ratio"]) == (29360128, "1:1")
    (skewed,) = rows(found, **key, group_shape="skewed", m_e=129)
    assert skewed["empty_ratio"] == 0.25 and skewed["imbalance"] > 5
    (hinted,) = rows(found, **key | {"arm": "int8_hint"}, group_shape="uniform", m_e=129)
    assert (hinted["base_m"], hinted["aiv_aic_ratio"]) == (160, "2:1")


def test_the_report_says_each_answer_in_a_sentence(both: RunTables) -> None:
    content = ReportContent(both.runs, both.captures, both.points, both.samples, both.alignments)
    said = {s.name: s for s in sections(content, predicted_points(both.runs, both.points))}
    assert list(said) == ["cores", "structure", "formats", "grouped"]
    assert "the fewest wq_b M 16 of sim-cann9.0.0: 1 of 16" in said["cores"].sentence
    assert "0 DynamicQuant kernels in 700 profiled calls of 28 points" in said["cores"].sentence
    assert said["formats"].sentence.endswith("Experiment E was not measured on these builds.")
    assert "48 of 48 rows have both formats proved" in said["formats"].sentence
    assert all(len(row) == len(section.head) for section in said.values() for row in section.rows)
    key = ["wq_a", NEW, "4096", "16"]
    (row,) = [row for row in said["cores"].rows if row[:4] == key]
    assert row[5:] == ["4", "tiling log", "16", "4, agrees", "100"]


def test_nz_that_is_slower_everywhere_is_not_said_to_gain(both: RunTables) -> None:
    samples = both.samples
    tripled = pc.multiply(samples["duration_ns"], pc.if_else(pc.equal(samples["arm"], "nz"), 3, 1))
    position = samples.column_names.index("duration_ns")
    slower = samples.set_column(position, samples.schema.field(position), tripled.cast(pa.int64()))
    content = ReportContent(both.runs, both.captures, both.points, slower, both.alignments)
    (said,) = [s for s in sections(content, predicted_points(both.runs, both.points)) if s.name == "formats"]
    assert "NZ is faster nowhere; it loses least at " in said.sentence and "gains" not in said.sentence


def test_predicted_charts_name_the_builds_and_say_predicted(both: RunTables) -> None:
    charts = predicted_charts(both.runs, both.points)
    titles = [chart.title for chart in charts]
    assert len(charts) == 9 and "A dynamic_quant: wq_a K4096" in titles
    assert all(f"{build} · predicted" in c.figure for c in charts for build in (OLD, NEW))


def test_builds_without_a_known_release_have_no_predicted_charts(both: RunTables) -> None:
    components = [[("cann", "1.2.3")]] * both.runs.num_rows
    position = both.runs.column_names.index("build_components")
    field = both.runs.schema.field(position)
    runs = both.runs.set_column(position, field, pa.array(components, field.type))
    assert predicted_charts(runs, both.points) == []
    assert predicted_points(runs, both.points).num_rows == 0


def test_every_observed_field_stands_beside_its_prediction(both: RunTables) -> None:
    (section,) = agreement_sections(both.runs, both.points, both.alignments)
    assert "values that host tiling was predicted to take agree" in section.sentence
    assert "Simulated records follow the same rules" in section.sentence
    found = {(row[0], row[1], row[2]): row[3:] for row in section.rows}
    compared, agree, differ = found[(NEW, "DynamicQuant", "block_dim")]
    assert compared == agree and int(compared) > 0 and differ == "0"
    assert (OLD, "GroupedMatmul", "single_n") in found


def test_a_build_that_tiles_otherwise_is_a_finding_with_rule_and_reasons(both: RunTables) -> None:
    position = both.alignments.column_names.index("block_dim")
    wrong = [
        row["block_dim"] and row["block_dim"] + (row["point_id"] == first)
        for first in [rows(both.alignments, build=NEW, experiment="A", arm="standalone")[0]["point_id"]]
        for row in both.alignments.to_pylist()
    ]
    field = both.alignments.schema.field(position)
    alignments = both.alignments.set_column(position, field, pa.array(wrong, field.type))
    found = agreement(both.runs, both.points, alignments)
    assert found is not None
    said = [row for row in found.disagreements.to_pylist() if row["build"] == NEW]
    assert {(row["operator"], row["field"]) for row in said} == {("DynamicQuant", "block_dim")}
    assert int(said[0]["observed"]) == int(said[0]["predicted"]) + 1
    assert said[0]["k"] in (1024, 4096) and said[0]["rule"] and "cores are limited" in said[0]["reasons"]
    _, findings = agreement_sections(both.runs, both.points, alignments)
    assert findings.rows[0][2] == "A dynamic_quant"


def test_without_a_known_release_nothing_is_compared(both: RunTables) -> None:
    assert agreement_sections(both.runs.slice(0, 0), both.points, both.alignments) == []
