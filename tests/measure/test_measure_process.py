"""One measuring process, really run: complete, failed, refused, and never measured twice."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.collect.manifest import read_manifest, verify
from tilewatch.tasks.measure.method import METHOD_VERSION
from tilewatch.tasks.measure.run import (
    EXIT_BUILD_CHANGED,
    EXIT_STOPPED,
    PROGRAM,
    Description,
    MeasureError,
    Progress,
    describe,
    measure_process,
    without_secrets,
)
from tilewatch.tasks.plan.build_id import build_id

Make = Callable[..., dict[str, Any]]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_process_leaves_a_whole_capture_and_says_how_far_it_is(
    plan: Make, point: Make, tmp_path: Path
) -> None:
    seen: list[Progress] = []
    points = [point(1), point(2, operation="dynamic_quant", dtype_w=None, dtype_out="int8")]
    outcome = measure_process(
        plan(points), tmp_path / "c", python=sys.executable, timeout_s=60, on_progress=seen.append
    )
    assert (outcome.status, outcome.reason, outcome.has_manifest) == ("complete", None, True)
    verify(tmp_path / "c", read_manifest(tmp_path / "c"))
    assert {p.name for p in (tmp_path / "c").iterdir()} == {
        "capture.json", "environment.json", "manifest.json", "plan.json", "points.jsonl", "profiler",
        "samples.jsonl", "stderr.log", "stdout.log",
    }  # fmt: skip
    assert [p.done for p in seen if p.done] == [1, 2, 2] and seen[-1].total == 2
    assert not list(tmp_path.glob("*.plan.json"))
    samples = lines(tmp_path / "c" / "samples.jsonl")
    kept = [s for s in samples if not s["warm_up"] and not s["discarded"]]
    assert {p: sum(s["point_id"] == p for s in kept) for p in (f"{1:016x}", f"{2:016x}")} == {
        f"{1:016x}": 4,
        f"{2:016x}": 4,
    }
    assert [s["position"] for s in samples] == list(range(len(samples)))
    assert all(s["duration_ns"] == max(1, round(s["interval_ns"] / s["calls"])) for s in samples)


def test_a_capture_that_is_there_is_returned_and_not_measured_again(
    plan: Make, point: Make, tmp_path: Path
) -> None:
    first = measure_process(plan([point(1)]), tmp_path / "c", python=sys.executable, timeout_s=60)
    manifest = (tmp_path / "c" / "manifest.json").read_bytes()
    second = measure_process(plan([point(1)]), tmp_path / "c", python="/nowhere/python", timeout_s=60)
    assert (first.status, second.status) == ("complete", "complete")
    assert (tmp_path / "c" / "manifest.json").read_bytes() == manifest


def test_every_weight_copy_is_proved_and_the_rotation_exceeds_twice_the_cache(
    plan: Make, point: Make, described: Description, tmp_path: Path
) -> None:
    method = plan([])["method"] | {"cache": "rotate_weights_2x_last_level_cache"}
    points = [point(1, k=1024, n=1024), point(2, k=1024, n=1024, weight_format_requested="ND")]
    measure_process(plan(points, method=method), tmp_path / "c", python=sys.executable, timeout_s=60)
    nz, nd = lines(tmp_path / "c" / "points.jsonl")
    assert (nz["weight_format"], nz["dispatched_operator"]) == ("FRACTAL_NZ", "cpu_quant_matmul_weight_nz")
    assert (nd["weight_format"], nd["dispatched_operator"]) == ("ND", "cpu_quant_matmul_nd")
    for record in (nz, nd):
        assert record["weight_rotation_bytes"] >= 2 * described.last_level_cache_bytes
        assert record["weight_copies"] * 1024 * 1024 == record["weight_rotation_bytes"]


def test_an_unaligned_weight_stays_nd_as_in_serving_and_the_record_says_so(
    plan: Make, point: Make, tmp_path: Path
) -> None:
    measure_process(plan([point(1, k=100, n=50)]), tmp_path / "c", python=sys.executable, timeout_s=60)
    (record,) = lines(tmp_path / "c" / "points.jsonl")
    assert (record["weight_format"], record["dispatched_operator"]) == ("ND", "cpu_quant_matmul_nd")


def test_the_variable_of_the_serving_path_keeps_weights_nd(plan: Make, point: Make, tmp_path: Path) -> None:
    env = {"SGLANG_NPU_DISABLE_ACL_FORMAT_WEIGHT": "1"}
    measure_process(plan([point(1)], env=env), tmp_path / "c", python=sys.executable, timeout_s=60)
    assert lines(tmp_path / "c" / "points.jsonl")[0]["weight_format"] == "ND"
    assert (
        json.loads((tmp_path / "c" / "capture.json").read_text())["environment_variables"].items()
        >= env.items()
    )


def test_a_failing_operator_ends_the_process_and_keeps_what_was_finished(
    plan: Make, point: Make, tmp_path: Path
) -> None:
    broken = point(
        2, operation="grouped_matmul", local_experts=2, group_list=[9, 9], group_list_type=1, m_executed=8
    )
    outcome = measure_process(
        plan([point(1), broken, point(3)]), tmp_path / "c", python=sys.executable, timeout_s=60
    )
    assert (outcome.status, outcome.has_manifest) == ("failed", True)
    assert outcome.reason is not None and "group_list [9, 9] does not fit into 8 rows" in outcome.reason
    assert "RuntimeError" in outcome.log_tail
    records = lines(tmp_path / "c" / "points.jsonl")
    assert [r["status"] for r in records] == ["measured", "failed", "unmeasured"]
    assert {s["point_id"] for s in lines(tmp_path / "c" / "samples.jsonl")} == {f"{1:016x}"}


def test_a_changed_build_is_not_measured(plan: Make, point: Make, tmp_path: Path) -> None:
    stale = plan([point(1)], build={"label": "test", "build_id": "0" * 16})
    outcome = measure_process(stale, tmp_path / "c", python=sys.executable, timeout_s=60)
    assert (outcome.status, outcome.has_manifest) == ("build_changed", False)
    assert outcome.reason is not None
    assert "build changed: the plan is for 0000000000000000" in outcome.reason


def test_the_exit_codes_of_the_program_are_those_that_its_parent_knows() -> None:
    said = (PROGRAM.parent / "main.py").read_text(encoding="utf-8")
    codes = dict(re.findall(r"^(EXIT_\w+) = (\d+)$", said, re.MULTILINE))
    assert int(codes["EXIT_STOPPED"]) == EXIT_STOPPED
    assert int(codes["EXIT_BUILD_CHANGED"]) == EXIT_BUILD_CHANGED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "counters"}, "agent, kind: cpu, counters"),
        ({"seed": "7"}, "seed: needs int, not '7'"),
        ({"points": []}, "points: empty"),
        ({"amount": {"samples": 0}}, "amount.samples: 0 is too small"),
        ({"method": {"method_version": METHOD_VERSION, "threads": 1, "timer": "sundial"}}, "method.timer"),
    ],
)
def test_a_plan_that_cannot_be_executed_is_refused_by_field(
    plan: Make, point: Make, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    made = plan([point(1)])
    made |= {key: made[key] | value if key == "amount" else value for key, value in change.items()}
    outcome = measure_process(made, tmp_path / "c", python=sys.executable, timeout_s=60)
    assert outcome.status == "failed" and not outcome.has_manifest
    assert outcome.reason is not None and message in outcome.reason


def test_more_threads_than_cores_are_refused(plan: Make, point: Make, tmp_path: Path) -> None:
    made = plan([point(1)], method=plan([])["method"] | {"threads": 100_000})
    outcome = measure_process(made, tmp_path / "c", python=sys.executable, timeout_s=60)
    assert outcome.reason is not None and "method.threads: 100000, but only" in outcome.reason


def test_a_folder_that_is_no_capture_is_left_alone(plan: Make, point: Make, tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "thesis.tex").write_text("years of work")
    with pytest.raises(MeasureError, match="is not a capture .it holds thesis.tex"):
        measure_process(plan([point(1)]), tmp_path / "c", python=sys.executable, timeout_s=60)
    assert (tmp_path / "c" / "thesis.tex").is_file()


def test_no_credential_reaches_the_process_or_the_capture(
    plan: Make, point: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWATCH_S3_SECRET_KEY", "hunter2hunter2")
    measure_process(plan([point(1)]), tmp_path / "c", python=sys.executable, timeout_s=60)
    files = [p for p in (tmp_path / "c").rglob("*") if p.is_file()]
    assert files and not [p for p in files if b"hunter2hunter2" in p.read_bytes()]


def test_a_number_of_tokens_is_no_credential() -> None:
    given = {
        "HF_TOKEN": "x",
        "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK": "96",
        "TOKENIZERS_PARALLELISM": "0",
    }
    assert set(without_secrets(given)) == set(given) - {"HF_TOKEN"}


def test_the_build_has_the_same_name_on_both_sides(described: Description) -> None:
    assert described.build_id == build_id(described.components)
    assert described.method_version == METHOD_VERSION
    assert set(described.components) >= {"torch", "numpy", "python", "kernels"}
    assert described.cores == len(os.sched_getaffinity(0))


def test_an_interpreter_that_does_not_exist_is_named_with_its_setting() -> None:
    with pytest.raises(MeasureError, match="measure_python: /nowhere/python cannot be started"):
        describe("/nowhere/python", "cpu")
