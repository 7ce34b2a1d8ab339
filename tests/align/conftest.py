"""A planned run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewatch.tasks.plan.experiment import load_experiments
from tilewatch.tasks.plan.plan import Request, make_plan
from tilewatch.tasks.plan.run_document import RunDocument

EXPERIMENTS = load_experiments(Path(__file__).parents[2] / "flows" / "experiments")


@pytest.fixture(scope="session")
def document() -> RunDocument:
    """A smoke run of B and D on the cpu agent."""
    request = Request(preset="smoke", agent="cpu", seed=3)
    return RunDocument(
        run_id="01RUN",
        started_ns=1_000,
        command="tilewatch run B D --preset smoke",
        agent="cpu",
        evidence="measured",
        preset="smoke",
        seed=3,
        build="base",
        build_id="b" * 16,
        components={"torch": "2.13.0"},
        host="host",
        device="cpu",
        device_class="cpu",
        method={"method_version": 1},
        method_hash="m" * 16,
        plans={letter: make_plan(EXPERIMENTS[letter], request) for letter in ("B", "D")},
    )
