"""The plan of experiment E: fresh servers in ABBA order, the same plan for the same request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tilewatch.tasks.plan.plan import PlanError
from tilewatch.tasks.plan.run_document import RunDocument, read_run_document
from tilewatch.tasks.plan.serving import load_serving_experiments
from tilewatch.tasks.plan.serving_plan import Client, ServingPlan, ServingRequest, make_serving_plan

E = load_serving_experiments(Path(__file__).parents[2] / "flows" / "experiments")["E"]
BUILTIN = Client("builtin", "1", "")
QUICK = ServingRequest("quick", "cpu", seed=3)


def _plan(request: ServingRequest = QUICK, client: Client = BUILTIN) -> ServingPlan:
    return make_serving_plan(E, request, client)


def test_timing_launches_go_forth_and_back_over_the_arms_and_profiles_come_last() -> None:
    plan = _plan()
    timing = [launch.arm for launch in plan.launches if launch.role == "timing"]
    assert len(timing) == 15 and set(timing) == {"w8a8_nz", "w8a8_nd", "bf16"}
    assert timing[3:6] == timing[2::-1] and timing[6:9] == timing[:3]
    assert [launch.role for launch in plan.launches[-3:]] == ["profile"] * 3
    assert len({launch.name for launch in plan.launches}) == len(plan.launches)


def test_arms_of_a_block_get_the_same_prompts_and_another_block_others() -> None:
    seeds: dict[int, set[int]] = {}
    for launch in _plan().launches:
        seeds.setdefault(launch.block, set()).add(launch.seed)
    assert all(len(of_block) == 1 for of_block in seeds.values())
    assert len(set.union(*seeds.values())) == len(seeds)


def test_the_hash_names_what_is_measured_and_not_how_often_or_in_which_order() -> None:
    plan = _plan()
    assert _plan() == plan
    again = _plan(replace(QUICK, seed=4, launches=3))
    assert (again.plan_hash, again.load_id) == (plan.plan_hash, plan.load_id)
    assert [x.seed for x in again.launches[:3]] == [x.seed for x in plan.launches[:3]]
    assert _plan(replace(QUICK, preset="smoke")).plan_hash != plan.plan_hash


def test_another_client_is_another_method() -> None:
    sglang = _plan(client=Client("sglang", "0.5.23", "/usr/bin/python3"))
    assert sglang.method_hash != _plan().method_hash and sglang.plan_hash == _plan().plan_hash


def test_what_cannot_be_planned_says_what_can() -> None:
    with pytest.raises(PlanError, match="no preset 'full'; known: smoke, quick, reference_ci"):
        _plan(replace(QUICK, preset="full"))
    with pytest.raises(PlanError, match="which agent simulated cannot run; it is for: cpu, npu"):
        _plan(replace(QUICK, agent="simulated"))
    with pytest.raises(PlanError, match="no arm 'fp8'; known: w8a8_nz, w8a8_nd, bf16"):
        _plan(replace(QUICK, arm="fp8"))
    with pytest.raises(PlanError, match="servers.sglang.variables.draft_model is not set"):
        _plan(ServingRequest("reference_ci", "npu", seed=1))


def test_a_plan_survives_the_json_of_its_run() -> None:
    plan = _plan(replace(QUICK, preset="smoke"))
    document = RunDocument(
        run_id="01RUN", started_ns=1, command="tilewatch run E", agent="cpu", evidence="measured",
        preset="smoke", seed=3, build="here", build_id="0", components={}, host="h", device="d",
        device_class="c", method={"method_version": 1}, method_hash="m", plans={}, serving={"E": plan},
    )  # fmt: skip
    read = read_run_document(document.to_json())
    assert read == document and read.experiments == ("E",)
    assert read.serving["E"].order == ("w8a8_nz", "w8a8_nd", "bf16"), "the file's order, not the alphabet's"
