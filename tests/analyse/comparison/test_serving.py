"""Arm against arm in experiment E: verdicts, their direction, refusals, flags, floors and error rates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.analyse import serving_case as case
from tilewatch.data_contracts import schema
from tilewatch.tasks.analyse.comparison.serving_compare import (
    ServingRequest,
    compare_serving_arms,
    compare_serving_builds,
)
from tilewatch.tasks.analyse.comparison.serving_values import between_lease_history, launch_values
from tilewatch.tasks.analyse.statistics.launch_bootstrap import launch_test
from tilewatch.tasks.analyse.statistics.limits import ServingLimits
from tilewatch.tasks.analyse.tables import AnalysisError

LIMITS = ServingLimits(resamples=4000)
REQUEST = ServingRequest("cpu", "cpu", LIMITS)
STEADY = [10.00, 10.02, 9.98, 10.01, 9.99]
FASTER = [value * 0.9 for value in STEADY]


def rows(table: Any) -> dict[str, dict[str, Any]]:
    return {row["metric"]: row for row in table.to_pylist()}


def arms(base: list[float], candidate: list[float], **more: Any) -> dict[str, dict[str, Any]]:
    tables = case.arm_run({"nz": base, "nd": candidate}, more)
    return rows(compare_serving_arms(tables, [("nz", "nd")], REQUEST))


def test_less_time_and_more_throughput_are_both_faster() -> None:
    found = arms(STEADY, FASTER)
    assert {metric: row["verdict"] for metric, row in found.items()} == dict.fromkeys(
        ("ttft_ns", "tpot_ns", "output_token_per_s", "request_per_s"), "FASTER"
    )
    assert found["tpot_ns"]["ratio"] == pytest.approx(0.9)
    assert found["output_token_per_s"]["ratio"] == pytest.approx(1 / 0.9)
    assert found["tpot_ns"]["base_value"] == pytest.approx(10e6, rel=1e-3)


def test_more_time_and_less_throughput_are_both_slower() -> None:
    found = arms(FASTER, STEADY)
    assert {row["verdict"] for row in found.values()} == {"SLOWER"}


def test_equal_arms_are_the_same_and_say_what_they_could_have_seen() -> None:
    row = arms(STEADY, STEADY[::-1])["tpot_ns"]
    assert row["verdict"] == "SAME"
    assert row["ratio_low"] <= 1 <= row["ratio_high"]
    assert row["power"] == 0.8 and 1.005 < row["detectable_ratio"] < 1.01


def test_the_floor_is_half_a_percent_or_three_times_a_a_whichever_is_more() -> None:
    quiet = arms(STEADY, FASTER)["tpot_ns"]
    assert quiet["floor_ratio"] == pytest.approx(1.005) and quiet["floor_reason"].startswith("0.5%")
    noisy = arms([9.6, 10.4, 10.0, 9.8, 10.2], [9.6, 10.4, 10.0, 9.8, 10.2])["tpot_ns"]
    spread = np.std(np.log([9.6, 10.4, 10.0, 9.8, 10.2]), ddof=1)
    assert noisy["floor_ratio"] == pytest.approx(np.exp(3 * spread * np.sqrt(2 / 5)))
    assert noisy["floor_reason"] == "3 × A/A between launches of one arm"


def test_under_five_launches_nothing_is_decided_and_the_missing_ones_are_asked_for() -> None:
    row = arms(STEADY[:2], FASTER[:2])["tpot_ns"]
    assert (row["verdict"], row["extra_launches"]) == ("UNDECIDED", 3)
    assert row["ratio"] == pytest.approx(0.9, rel=0.01)


def test_an_arm_without_a_good_launch_is_missing_and_says_why() -> None:
    good = case.arm_run({"nz": STEADY})
    lost = case.failed("nd", 0, "ready", "not ready after 30 s")
    launches = [*good.launches.to_pylist(), lost]
    tables = case.tables(launches, good.requests.to_pylist(), good.serving_metrics.to_pylist())
    found = rows(compare_serving_arms(tables, [("nz", "nd")], REQUEST))
    assert {row["verdict"] for row in found.values()} == {"MISSING"}
    assert found["tpot_ns"]["verdict_reason"] == (
        "no value in the candidate: 1 of 1 launches failed (ready: not ready after 30 s)"
    )
    assert found["tpot_ns"]["ratio"] is None and found["tpot_ns"]["candidate_failed"] == 1


def test_a_launch_whose_arm_was_not_proved_gives_no_number() -> None:
    found = arms(STEADY, FASTER, nd={"arm_proved": False})
    assert found["tpot_ns"]["verdict"] == "MISSING"
    assert "the arm was not proved in 5 of 5 launches" in found["tpot_ns"]["verdict_reason"]


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("method_hash", "method-2", "method_hash: method-1 -> method-2"),
        ("evidence", "simulated", "evidence: measured -> simulated"),
        ("device_class", "Other CPU", "device_class: Invented CPU, 2 cores -> Other CPU"),
        ("model", "other", "model: None -> other"),
    ],
)
def test_a_forbidden_difference_refuses_the_pair_and_is_named(field: str, value: str, named: str) -> None:
    row = arms(STEADY, FASTER, nd={field: value})["tpot_ns"]
    assert (row["verdict"], row["refused"], row["ratio"]) == ("UNDECIDED", named, None)


def test_weights_that_the_plan_gives_an_arm_are_flagged_but_another_shape_is_another_model() -> None:
    named = {"nz": {"model": "/models/w8a8"}, "nd": {"model": "/models/bf16"}}
    row = arms(STEADY, FASTER, **named)["tpot_ns"]
    assert row["verdict"] == "FASTER" and row["flags"] == ["weights: /models/w8a8 -> /models/bf16"]
    shaped = {"nz": {"model": '{"layers": 3}'}, "nd": {"model": '{"layers": 4}'}}
    assert arms(STEADY, FASTER, **shaped)["tpot_ns"]["refused"].startswith('model: {"layers": 3} -> ')


def test_different_loads_are_refused_in_words_unless_overridden() -> None:
    other = {"nd": {"load_id": "load-128-16", "input_tokens": 128}}
    row = arms(STEADY, FASTER, **other)["tpot_ns"]
    assert row["refused"] == (
        "load: 64 in, 16 out, 8 prompts, concurrency 4 -> 128 in, 16 out, 8 prompts, concurrency 4"
    )
    tables = case.arm_run({"nz": STEADY, "nd": FASTER}, other)
    allowed = ServingRequest("cpu", "cpu", LIMITS, overrides=["load"])
    row = rows(compare_serving_arms(tables, [("nz", "nd")], allowed))["tpot_ns"]
    assert row["verdict"] == "FASTER" and row["overrides"][0].startswith("load: 64 in")


def test_different_acceptance_flags_tpot_and_gives_the_step_time_its_own_verdict() -> None:
    nz = {"acceptance_length": 2.6, "verify_step_ns": 25e6}
    nd = {"acceptance_length": 2.5, "verify_step_ns": 25e6}
    found = arms(STEADY, FASTER, nz=nz, nd=nd)
    assert found["tpot_ns"]["flags"] == ["acceptance_differs: 2.600 -> 2.500; judge step_ns"]
    assert found["ttft_ns"]["flags"] == []
    assert found["step_ns"]["verdict"] == "SAME"
    equal = arms(STEADY, FASTER, nz=nz, nd=nz)
    assert equal["tpot_ns"]["flags"] == []


def test_forced_differences_stand_on_every_row_with_their_arm() -> None:
    forced = ["the format variable flips all linears and the experts"]
    found = arms(STEADY, FASTER, nd={"forced_differences": forced})
    assert all(row["forced_differences"] == [f"nd: {forced[0]}"] for row in found.values())


def test_builds_in_different_leases_need_a_history_of_leases() -> None:
    old = case.arm_run({"nz": STEADY}, {"nz": {"build": "cann-1", "lease_id": "a", "run_id": "r1"}})
    new = case.arm_run({"nz": FASTER}, {"nz": {"build": "cann-2", "lease_id": "b", "run_id": "r2"}})
    request = ServingRequest(
        "cann-1", "cann-2", base_components={"cann": "1"}, candidate_components={"cann": "2"}
    )
    row = rows(compare_serving_builds(old, new, request))["tpot_ns"]
    assert row["verdict"] == "UNDECIDED" and "no archived A/A runs" in row["verdict_reason"]
    assert row["changed_components"] == ["cann: 1 -> 2"] and row["cause_separable"]
    archive = [
        launch_values(
            case.arm_run({"nz": [v * f for v in STEADY]}, {"nz": {"lease_id": lease, "build": lease}})
        )
        for lease, f in (("a", 1.0), ("b", 1.004), ("c", 0.997), ("d", 1.001))
    ]
    same_build = [t.set_column(3, "build_id", [["id-x"] * t.num_rows]) for t in archive]
    request = ServingRequest("cann-1", "cann-2", history=between_lease_history(pa.concat_tables(same_build)))
    row = rows(compare_serving_builds(old, new, request))["tpot_ns"]
    assert row["verdict"] == "FASTER" and row["floor_reason"] == "3 × A/A between leases"


def test_builds_of_another_plan_are_refused() -> None:
    old = case.arm_run({"nz": STEADY}, {"nz": {"build": "cann-1"}})
    new = case.arm_run({"nz": FASTER}, {"nz": {"build": "cann-2", "plan_hash": "plan-2"}})
    row = rows(compare_serving_builds(old, new, ServingRequest("cann-1", "cann-2")))["tpot_ns"]
    assert row["refused"] == "plan_hash: plan-1 -> plan-2"


def test_unknown_arms_and_overrides_are_named() -> None:
    tables = case.arm_run({"nz": STEADY})
    with pytest.raises(AnalysisError, match="no launch of arm bf16; there are: nz"):
        compare_serving_arms(tables, [("nz", "bf16")], REQUEST)
    with pytest.raises(AnalysisError, match="overrides: unknown key colour; known: agent"):
        compare_serving_arms(tables, [("nz", "nz")], ServingRequest("a", "a", overrides=["colour"]))


def test_the_order_of_rows_changes_nothing() -> None:
    tables = case.arm_run({"nz": STEADY, "nd": [10.4, 9.9, 10.1, 10.0, 10.2]})
    draw = np.random.default_rng(3)
    mixed = case.ServingTables(
        *(
            table.take(draw.permutation(table.num_rows))
            for table in (tables.launches, tables.requests, tables.serving_metrics)
        )
    )
    first, second = (compare_serving_arms(t, [("nz", "nd")], REQUEST) for t in (tables, mixed))
    assert first.schema.equals(schema("serving_comparisons")) and first.equals(second)


def test_profiled_launches_enter_no_value() -> None:
    tables = case.arm_run({"nz": STEADY}, {"nz": {"role": "profile"}})
    assert launch_values(tables).num_rows == 0


def test_of_many_identical_pairs_few_are_called_different_and_intervals_hold() -> None:
    """400 loads, five launches an arm, 1.5 % between launches, 10 % between requests."""
    draw = np.random.default_rng(8)
    server = np.exp(0.015 * draw.standard_normal((2, 400, 5)))
    request = np.exp(0.1 * draw.standard_normal((2, 400, 5, 16))).mean(axis=3)
    base, candidate = server * request
    test = launch_test(list(base), list(candidate), LIMITS)
    covered = float(np.mean((test.low <= 0) & (test.high >= 0)))
    false = float(np.mean(test.welch.p_value < 0.05))
    print(f"of 400 identical pairs {covered:.1%} of the intervals hold 1, Welch calls {false:.1%} different")
    assert covered >= 0.93 and false <= 0.07


def test_the_interval_of_two_samples_is_that_of_every_resample_counted() -> None:
    """With two launches a side all 16 resamples can be listed: the interval ends at their extremes."""
    base, candidate = np.exp([0.0, 0.2]), np.exp([0.1, 0.5])
    test = launch_test([list(base)], [list(candidate)], LIMITS)
    means = [
        (c1 + c2) / 2 - (b1 + b2) / 2
        for b1 in (0.0, 0.2) for b2 in (0.0, 0.2) for c1 in (0.1, 0.5) for c2 in (0.1, 0.5)
    ]  # fmt: skip
    assert test.low[0] == pytest.approx(min(means)) and test.high[0] == pytest.approx(max(means))
