"""`tilewatch run --agent npu` from plan to report on the real torch_npu over the software NPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from tasks.plan.experiment import load_experiments
from tasks.plan.plan import Plan, Request, make_plan

TILEWATCH = Path(sys.executable).parent / "tilewatch"
Make = Callable[..., Any]


@pytest.fixture(scope="module")
def plans(repository: Path) -> dict[str, Plan]:
    """The smoke plan of every experiment for the npu agent."""
    experiments = load_experiments(repository / "flows/experiments")
    return {letter: make_plan(e, Request("smoke", "npu", 1)) for letter, e in experiments.items()}


@pytest.fixture(scope="module")
def tilewatch(
    plans: dict[str, Plan], npu_python: Path, software_npu: Mapping[str, str], software_tilings: Make,
    prefect_server: str, tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., str]:  # fmt: skip
    """Runs a command in a home of its own, in the environment of the software NPU; returns its stdout."""
    home = tmp_path_factory.mktemp("home")
    points = [point for plan in plans.values() for arm in plan.points.values() for point in arm]
    software_tilings(points, home / "tilings.tsv")
    environment = {
        **os.environ, **software_npu, "SOFTWARE_NPU_ROWS": "1", "PREFECT_API_URL": prefect_server,
        "SOFTWARE_NPU_TILINGS": str(home / "tilings.tsv"), "TILEWATCH_HOME": str(home / "tilewatch"),
        "TILEWATCH_LOCK_FOLDER": str(home / "locks"), "TILEWATCH_MEASURE_PYTHON": str(npu_python),
    }  # fmt: skip

    def run(*words: str, code: int = 0, timeout: float = 280, **variables: str) -> str:
        done = subprocess.run(
            [str(TILEWATCH), *words],
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == code, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    return run


def rows(tilewatch: Callable[..., str], sql: str) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = orjson.loads(tilewatch("query", sql, "--json"))
    return answer


def test_arm_c_is_proved_in_the_table_and_explained_by_its_own_tiling(
    tilewatch: Callable[..., str], plans: dict[str, Plan]
) -> None:
    point = plans["C"].points["nz"][0]["point_id"]
    tilewatch("run", "C", "--agent", "npu", "--preset", "smoke", "--point", point, "--build", "proof")
    found = rows(
        tilewatch,
        "select p.arm, p.status, p.weight_format, p.dispatched_operator, p.evidence, a.status as aligned, "
        "a.kernel_weight_format, a.kernel_count = a.expected_kernel_count as counted, a.tiling_key, a.base_n "
        "from points p join alignments a using (run_id, arm, point_id) where p.build = 'proof' "
        "order by p.arm",
    )
    common = {"status": "present", "evidence": "simulated", "aligned": "aligned", "counted": True}
    assert found == [
        common
        | {
            "arm": arm,
            "weight_format": layout,
            "dispatched_operator": operator,
            "kernel_weight_format": layout,
            "tiling_key": "24",
            "base_n": 64,
        }
        for arm, layout, operator in (
            ("nd", "ND", "aclnnQuantMatmulV5"),
            ("nz", "FRACTAL_NZ", "aclnnQuantMatmulWeightNz"),
        )
    ]


@pytest.mark.soak
@pytest.mark.timeout(1900)
def test_experiments_a_to_d_run_from_plan_to_report(
    tilewatch: Callable[..., str], plans: dict[str, Plan]
) -> None:
    words = ("run", *plans, "--agent", "npu", "--preset", "smoke", "--build", "soak")
    answer = tilewatch(*words, timeout=1800)
    assert "report.html" in answer
    runs = rows(
        tilewatch, "select experiment, status, evidence, missing_points from runs where build = 'soak'"
    )
    assert {row["experiment"] for row in runs} == set(plans)
    assert {(row["status"], row["evidence"], row["missing_points"]) for row in runs} == {
        ("complete", "simulated", 0)
    }
    unaligned = rows(
        tilewatch,
        "select experiment, arm, reason from alignments where build = 'soak' and status <> 'aligned'",
    )
    assert unaligned == []


@pytest.mark.soak
def test_without_internal_formats_arm_nz_is_reported_as_failed(
    tilewatch: Callable[..., str], plans: dict[str, Plan]
) -> None:
    point = plans["C"].points["nz"][0]["point_id"]
    tilewatch(
        "run", "C", "--agent", "npu", "--preset", "smoke", "--point", point, "--arm", "nz",
        "--build", "ndonly", code=1, TILEWATCH_FORBID_INTERNAL_FORMAT="1",
    )  # fmt: skip
    (row,) = rows(
        tilewatch,
        "select status, weight_format, status_reason from points where build = 'ndonly'",
    )
    assert (row["status"], row["weight_format"]) == ("missing", None)
    assert "the weight stayed ND where FRACTAL_NZ was asked for" in row["status_reason"]
