"""A plan is deterministic, hashed by what it measures, and ordered so that drift cancels."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tilewatch.tasks.plan.experiment import Experiment, ExperimentError, load_experiment, load_experiments
from tilewatch.tasks.plan.group_list import group_list
from tilewatch.tasks.plan.order import abba, control_points
from tilewatch.tasks.plan.plan import Plan, PlanError, Request, make_plan
from tilewatch.tasks.plan.points import axis_values
from tilewatch.tasks.plan.run_document import RunDocument, RunDocumentError, read_run_document
from tilewatch.tasks.predict.environment import cann_version, platform
from tilewatch.tasks.predict.questions.experiments import refinement

EXPERIMENTS = load_experiments(Path(__file__).parents[2] / "flows" / "experiments")
QUICK = Request(preset="quick", agent="cpu", seed=7)


def plan(letter: str, request: Request = QUICK) -> Plan:
    return make_plan(EXPERIMENTS[letter], request)


@pytest.mark.parametrize("letter", ["A", "B", "C", "D"])
def test_the_same_request_gives_the_same_plan(letter: str) -> None:
    assert plan(letter) == plan(letter)


def test_the_plan_hash_ignores_seed_and_process_count_but_not_points() -> None:
    usual = plan("B").plan_hash
    assert plan("B", replace(QUICK, seed=8, processes=9)).plan_hash == usual
    assert plan("B", replace(QUICK, axis="decode")).plan_hash != usual


def test_presets_change_how_much_is_measured_and_points_keep_their_identity() -> None:
    smoke, full = plan("B", replace(QUICK, preset="smoke")), plan("B", replace(QUICK, preset="full"))
    ids = {p["point_id"] for p in full.points["standalone"]}
    assert {p["point_id"] for p in smoke.points["standalone"]} < ids


def test_another_number_of_local_experts_is_another_point() -> None:
    cpu, npu = plan("D"), plan("D", replace(QUICK, agent="npu"))
    assert {p["local_experts"] for p in cpu.points["int8"]} == {4}
    assert {p["local_experts"] for p in npu.points["int8"]} == {16}
    assert not {p["point_id"] for p in cpu.points["int8"]} & {p["point_id"] for p in npu.points["int8"]}


def test_a_point_has_one_identity_in_all_arms() -> None:
    made = plan("C")
    assert [p["point_id"] for p in made.points["nz"]] == [p["point_id"] for p in made.points["nd"]]


def test_the_hint_arm_runs_where_there_is_a_tiling_to_tune() -> None:
    assert "int8_hint" not in plan("D").points
    hinted = plan("D", replace(QUICK, agent="npu")).points["int8_hint"]
    assert all(p["tuning_config"] == p["m_e"] for p in hinted)


def test_the_group_list_never_exceeds_the_allocated_rows() -> None:
    for p in plan("D", replace(QUICK, preset="full", agent="npu")).points["int8"]:
        assert sum(p["group_list"]) == p["m"] <= p["allocated_rows"] == p["m_executed"]
        assert p["allocated_rows"] == (9216 if p["allocation_regime"] == "padded" else p["m"])


@given(st.integers(1, 300), st.integers(1, 64))
def test_a_skewed_group_list_keeps_the_mean_and_leaves_a_quarter_empty(m_e: int, experts: int) -> None:
    counts = group_list("skewed", m_e, experts)
    assert sum(counts) == m_e * experts and len(counts) == experts
    assert counts == sorted(counts, reverse=True)
    assert counts[experts - experts // 4 :] == [0] * (experts // 4)


@given(st.integers(1, 6), st.integers(1, 5))
def test_over_two_blocks_every_arm_has_the_same_mean_position(arms: int, pairs: int) -> None:
    order = [lane for _, lane in abba(list(range(arms)), 2 * pairs)]
    positions = {arm: [i for i, lane in enumerate(order) if lane == arm] for arm in range(arms)}
    assert len({sum(p) / len(p) for p in positions.values()}) == 1


def test_control_points_are_five_percent_of_all_pairs() -> None:
    ids = {"a": [f"{i:03d}" for i in range(60)], "b": [f"{i:03d}" for i in range(60)]}
    chosen = control_points(ids, seed=1, arms=2)
    assert {arm: len(c) for arm, c in chosen.items()} == {"a": 3, "b": 3}
    assert control_points(ids, seed=2, arms=2) != chosen
    assert control_points(ids, seed=1, arms=0) == {}


def test_every_process_measures_all_points_of_its_arm_in_an_order_of_its_own() -> None:
    main = [p for p in plan("B").processes if p.arm == "bf16" and p.role == "main"]
    orders = [tuple(pt["point_id"] for pt in p.points) for p in main]
    assert len(main) == 5 and len(set(orders)) == 5 and len({frozenset(o) for o in orders}) == 1


def test_one_point_of_one_arm_can_be_planned_alone() -> None:
    wanted = plan("B").points["bf16"][3]["point_id"]
    alone = plan("B", replace(QUICK, point=wanted, arm="bf16"))
    assert {arm: [p["point_id"] for p in pts] for arm, pts in alone.points.items()} == {"bf16": [wanted]}
    assert alone.control == {}


def test_a_request_that_leaves_nothing_says_what_there_is() -> None:
    with pytest.raises(PlanError, match="known: standalone, tuple_input, bf16"):
        plan("B", replace(QUICK, arm="fp8"))
    with pytest.raises(PlanError, match="no preset 'slow'; known: smoke, quick, full"):
        plan("B", replace(QUICK, preset="slow"))
    with pytest.raises(PlanError, match="has no point"):
        plan("B", replace(QUICK, point="0" * 16))
    with pytest.raises(ExperimentError, match="no axis list 'rush'; known: decode, prefill"):
        plan("B", replace(QUICK, axis="rush"))


def test_an_axis_may_be_stated_value_by_value() -> None:
    spec = EXPERIMENTS["B"]
    assert axis_values(spec, spec.presets["quick"], "56,7,14") == [7, 14, 56]
    with pytest.raises(ExperimentError, match="'0,7'; known: decode, prefill, or values such as 7,14,28"):
        axis_values(spec, spec.presets["quick"], "0,7")


def test_a_refined_axis_adds_both_sides_of_every_predicted_boundary() -> None:
    spec = EXPERIMENTS["B"].model_copy(
        update={"axis": EXPERIMENTS["B"].axis.model_copy(update={"refine": "predicted"})}
    )
    assert isinstance(spec, Experiment)
    values = axis_values(spec, spec.presets["full"], refine=lambda e, case, arm: [16, 17, 32])
    assert values == [1, 2, 4, 8, 16, 17, 32, 64, 128]
    with pytest.raises(ExperimentError, match="say for which CANN versions with --refine"):
        axis_values(spec, spec.presets["full"])


def test_a_run_document_survives_its_json() -> None:
    document = RunDocument(
        run_id="01J",
        started_ns=1,
        command="tilewatch run B",
        agent="cpu",
        evidence="measured",
        preset="smoke",
        seed=7,
        build="x",
        build_id="y",
        components={"torch": "2.13.0"},
        host="h",
        device="d",
        device_class="c",
        method={"method_version": 1},
        method_hash="m",
        plans={"B": plan("B"), "D": plan("D")},
    )
    again = read_run_document(document.to_json())
    assert again == document and again.to_json() == document.to_json()
    with pytest.raises(RunDocumentError, match="spool/run.json: not a run document"):
        read_run_document(b"{", "spool/run.json")


def test_the_predictor_refines_the_axis_of_the_planned_curves() -> None:
    versions = [cann_version("8.5.0"), cann_version("9.0.0")]
    refined = replace(QUICK, refine=refinement(platform("Ascend910_9391"), versions))
    values = {p["m"] for p in plan("A", refined).points["standalone"]}
    assert {1, 2, 4, 8, 16, 32, 64} < values <= set(range(1, 129))
    assert {48, 49} <= values, "CANN 8.5.0 fills the last of 48 vector cores at M = 48"
    assert plan("A", refined).plan_hash != plan("A").plan_hash


def test_an_axis_may_be_nothing_but_a_range_refined_by_the_predictor(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "flows" / "experiments" / "quant_matmul.yaml").read_text()
    begin, end = text.index("  values:"), text.index("  named:")
    text = text[:begin] + "  range: [1, 256]\n  refine: predicted\n" + text[end:]
    (tmp_path / "refined.yaml").write_text(re.sub(r"axis: \[1, 16, 128\], ", "", text))
    spec = load_experiment(tmp_path / "refined.yaml")
    refined = replace(QUICK, refine=refinement(platform("Ascend910_9391"), [cann_version("9.1.0")]))
    values = [p["m"] for p in make_plan(spec, refined).points["tuple_input"] if p["linear"] == "wq_a"]
    assert {16, 17, 64, 65, 94, 95, 128, 129} <= set(values) and min(values) >= 1 and max(values) <= 256


def test_each_kind_of_process_has_blocks_of_its_own_and_only_timing_is_repeated() -> None:
    made = plan("C", replace(QUICK, agent="npu", processes=3))
    kinds = [(p.kind, p.block) for p in made.processes if p.role == "main" and p.arm == "nz"]
    assert kinds == [("timing", 0), ("timing", 1), ("timing", 2), ("tiling", 3), ("counters", 4)]
    beside = [p for p in made.processes if p.kind != "timing"]
    assert {p.name for p in beside} == {
        "nz-tiling-003",
        "nd-tiling-003",
        "nz-counters-004",
        "nd-counters-004",
    }
    assert all(p.points == made.points[p.arm] for p in beside)
    assert {p.kind for p in plan("C").processes} == {"timing"}  # a CPU has neither tiling nor AI Cores


def test_graphs_execute_the_smallest_bucket_that_holds_the_rows_and_only_an_npu_replays_them() -> None:
    graphs = {"launch_modes": ["eager", "npugraph"], "graph_buckets": [8, 64, 16384]}
    experiment = Experiment.model_validate(EXPERIMENTS["B"].model_dump(exclude_unset=True) | graphs)
    request = Request("smoke", "npu", 7)
    rows = make_plan(experiment, request).points["bf16"]
    assert [(p["launch_mode"], p["m"], p["m_executed"]) for p in rows] == [
        ("eager", 1, 1), ("eager", 16, 16), ("eager", 128, 128),
        ("npugraph", 1, 8), ("npugraph", 16, 64), ("npugraph", 128, 16384),
    ]  # fmt: skip
    eager = [p for p in rows if p["launch_mode"] == "eager"]
    assert eager == list(make_plan(EXPERIMENTS["B"], request).points["bf16"])
    others = graphs | {"graph_buckets": [8, 32, 16384]}
    other = Experiment.model_validate(EXPERIMENTS["B"].model_dump(exclude_unset=True) | others)
    assert make_plan(other, request).points["bf16"][-1]["point_id"] != rows[-1]["point_id"]
    on_cpu = make_plan(experiment, replace(request, agent="cpu")).points["bf16"]
    assert {p["launch_mode"] for p in on_cpu} == {"eager"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"launch_modes": ["npugraph"]}, "goes with launch mode npugraph"),
        ({"graph_buckets": [8]}, "goes with launch mode npugraph"),
        ({"launch_modes": ["npugraph"], "graph_buckets": [64, 8]}, "must ascend"),
        ({"launch_modes": ["npugraph"], "graph_buckets": [8]}, "no bucket holds M 16384"),
    ],
)
def test_buckets_that_do_not_fit_the_axis_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Experiment.model_validate(EXPERIMENTS["B"].model_dump(exclude_unset=True) | changes)
