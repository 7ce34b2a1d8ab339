"""`tilewatch run --environment A --environment B`: builds of one host as arms of one ABBA sweep."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tilewatch.flows.steps.requests import SweepRequest
from tilewatch.flows.sweep import check
from tilewatch.tasks.measure.environment import BuildEnvironmentError, parse_environment
from tilewatch.tasks.measure.run import describe
from tilewatch.tasks.plan.experiment import load_experiments
from tilewatch.tasks.plan.plan import Request, make_plan

pytestmark = pytest.mark.slow


@pytest.fixture
def environments(tmp_path: Path) -> tuple[str, str]:
    """Two builds of this host: one by a script that holds oneDNN to AVX2, one by its interpreter."""
    script = tmp_path / "set_env.sh"
    script.write_text("export ONEDNN_MAX_CPU_ISA=AVX2\n")
    return f"old={script}", f"new=python={sys.executable}"


def test_two_builds_are_measured_in_one_lease_in_abba_order_and_compared(
    home: Any, environments: tuple[str, str], repository: Path
) -> None:
    experiment = load_experiments(repository / "flows/experiments")["B"]
    point = make_plan(experiment, Request("smoke", "cpu", 1)).points["bf16"][0]["point_id"]
    words = [word for text in environments for word in ("--environment", text)]
    said = home.run("run", "B", "--preset", "smoke", "--point", point, "--arm", "bf16", *words)
    assert "new against old: " in said
    captures = home.rows(
        "select build, build_id, block, lease_id, raw_prefix from captures order by started_ns"
    )
    assert [(row["build"], row["block"]) for row in captures] == [
        ("old", 0), ("new", 0), ("new", 1), ("old", 1),
    ]  # fmt: skip
    assert len({row["lease_id"] for row in captures}) == 1
    assert all(row["raw_prefix"].startswith(f"raw/B/{row['build']}/") for row in captures)
    described = {
        one.label: describe(one.python or sys.executable, "cpu", one.variables()).build_id
        for one in map(parse_environment, environments)
    }
    assert {row["build"]: row["build_id"] for row in captures} == described
    (row,) = home.rows("select between_leases, refused, verdict_reason from comparisons")
    assert row == {
        "between_leases": False, "refused": None, "verdict_reason": "fewer than 5 processes a side",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "changes", "said"),
    [
        (("a=python=/p", "a=python=/q"), {}, "one label stands for one build"),
        (("a=python=/p",), {"build": "b"}, "leave out b"),
        (("a=python=/p",), {"agent": "simulated"}, "executes nothing"),
    ],
)
def test_environments_that_contradict_themselves_are_refused_before_anything_starts(
    words: tuple[str, ...], changes: dict[str, Any], said: str
) -> None:
    request = SweepRequest(environments=tuple(parse_environment(word) for word in words), **changes)
    with pytest.raises(BuildEnvironmentError, match=said):
        check(request)
