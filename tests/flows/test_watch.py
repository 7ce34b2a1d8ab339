"""A watch is never silently blind: what it did not compare it says, and fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from tests.flows.conftest import Home

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

OLD, NEW = "sim-cann8.5.0", "sim-cann9.0.0"
WATCHED = ("A", "--preset", "smoke", "--arm", "standalone", "--processes", "5", "--agent", "simulated")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, prefect_server: str) -> Iterator[Home]:
    """A home where the old build was measured at the prompt and approved."""
    made = Home(tmp_path_factory.mktemp("watched") / "home", {"PREFECT_API_URL": prefect_server})
    made.run("up", "--store-only")
    made.run("run", *WATCHED, "--build", OLD, "--seed", "7")
    made.run("baseline", "approve", OLD, "--reason", "for the watch")
    yield made
    made.run("down")


def on(watched: Home, device: int) -> Home:
    """The same home as an agent of that device sees it."""
    return replace(watched, environment={**watched.environment, "TILEWATCH_DEVICE": str(device)})


def test_a_device_is_the_same_at_a_prompt_and_under_an_agent(watched: Home) -> None:
    said = on(watched, 0).run("regression", *WATCHED, "--build", NEW)
    assert "SLOWER than in sim-cann8.5.0, confirmed in a second lease" in said
    assert "refused" not in said
    names = watched.rows("SELECT DISTINCT device FROM captures")
    assert [row["device"].rpartition(", ")[2] for row in names] == ["die 0"]


def test_a_watch_that_compared_nothing_fails_and_says_why(watched: Home, prefect_server: str) -> None:
    agent = on(watched, 3)
    agent.run("regression", *WATCHED, "--build", NEW, code=1)
    assert "not comparable: " in agent.stderr and "0 compared" in agent.stderr
    assert "die 0 -> " in agent.stderr and "die 3" in agent.stderr
    body = {"flows": {"name": {"any_": ["regression"]}}, "sort": "START_TIME_DESC"}
    run = httpx.post(f"{prefect_server}/flow_runs/filter", json=body).json()[0]
    assert run["state_type"] == "FAILED" and "not comparable" in run["state"]["message"]
    newest = {"artifacts": {"key": {"any_": ["regression"]}}, "sort": "CREATED_DESC"}
    told = httpx.post(f"{prefect_server}/artifacts/filter", json=newest).json()[0]["data"]
    assert told.startswith("Not comparable: ") and "No point" not in told


def test_an_armed_point_that_was_not_measured_fails_the_watch(watched: Home) -> None:
    alone = ("A", "--preset", "smoke", "--processes", "5", "--agent", "simulated", "--arm", "standalone")
    other = on(watched, 0)
    other.run("run", *alone, "--axis", "16,32", "--build", OLD, "--seed", "9")
    other.run("baseline", "approve", OLD, "--reason", "another axis")
    try:
        other.run("regression", *WATCHED, "--build", NEW, code=1)
        assert "missing (no value in the candidate: not planned there" in other.stderr
    finally:
        first = watched.rows("SELECT min(run_id) AS run FROM runs")[0]["run"]
        watched.run("baseline", "approve", first, "--reason", "for the watch")
