"""Plans of experiment E for the tests, and captures of launches whose numbers are known."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.measure.serving.capture import LaunchFacts, Record, write_capture
from tilewatch.tasks.measure.serving.errors import LaunchError
from tilewatch.tasks.measure.serving.load import BUILTIN
from tilewatch.tasks.measure.serving.metrics import RequestResult, result_line
from tilewatch.tasks.measure.serving.verify import Check
from tilewatch.tasks.plan.serving import load_serving_experiments
from tilewatch.tasks.plan.serving_plan import Launch, ServingPlan, ServingRequest, make_serving_plan

EXPERIMENTS = Path(__file__).parents[2] / "flows" / "experiments"
DEVICE = {"host": "here", "device": "a CPU", "device_class": "cpu test"}


@pytest.fixture(scope="session")
def plan() -> ServingPlan:
    """The smoke preset on this CPU with the built-in client."""
    experiment = load_serving_experiments(EXPERIMENTS)["E"]
    return make_serving_plan(experiment, ServingRequest("smoke", "cpu", seed=5), BUILTIN)


@pytest.fixture(scope="session")
def facts() -> LaunchFacts:
    """A run of this interpreter."""
    build = {"label": "test", "build_id": "0" * 16}
    return LaunchFacts("01RUN", "01LEASE", build, {}, DEVICE, "measured", sys.executable)


def launch_of(plan: ServingPlan, arm: str, role: str = "timing") -> Launch:
    """The first planned launch of an arm in a role."""
    return next(x for x in plan.launches if (x.arm, x.role) == (arm, role))


WriteLaunch = Callable[..., Path]


@pytest.fixture
def write_launch(plan: ServingPlan, facts: LaunchFacts, tmp_path: Path) -> WriteLaunch:
    """Writes the capture of a launch without a server: its requests are given."""

    def write(
        requests: list[RequestResult], *, arm: str = "bf16", role: str = "timing", info: Any = None,
        failure: LaunchError | None = None, extra_lines: tuple[str, ...] = (),
    ) -> Path:  # fmt: skip
        launch = launch_of(plan, arm, role)
        folder = tmp_path / launch.name
        (folder / "log").mkdir(parents=True)
        (folder / "log" / "server.log").write_text("loading\nready\n")
        line = json.dumps(result_line(plan.load, requests, 2.0, 0.1))
        (folder / "results.jsonl").write_text("\n".join([line, *extra_lines]) + "\n")
        record = Record(pid=1, ready_after_ns=5, repeats=1, command=["serve", "--port", "1"])
        record.checks = [Check("arm", arm, arm, "server info", True)]
        record.info_before = record.info_after = info or {}
        record.failure = failure
        write_capture(plan, launch, folder, facts, record)
        return folder

    return write
