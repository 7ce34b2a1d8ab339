"""Killed at any instant, a run goes on: what is measured is kept, only the rest is measured."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.flows.conftest import SMOKE, Home
from tilewatch.infra.services import seaweed
from tilewatch.infra.settings import Settings

POINTS = "SELECT experiment, arm, point_id, status, present_processes FROM points ORDER BY ALL"
CAPTURES = "SELECT experiment, arm, role, process_index, status FROM captures ORDER BY ALL"
KEPT = """SELECT arm, role, process_index, point_id, count(*) AS n FROM samples
          WHERE NOT warm_up AND NOT discarded GROUP BY ALL ORDER BY ALL"""
LONGEST_KILL_S = 16.0


def tables(home: Home) -> list[object]:
    """Keys and counts of everything a run stores."""
    return [home.rows(sql) for sql in (POINTS, CAPTURES, KEPT)]


def run_ids(home: Home) -> list[str]:
    spool = home.path / "spool"
    return sorted(p.parent.name for p in spool.glob("*/run.json")) if spool.is_dir() else []


def kill_after(run: subprocess.Popen[str], seconds: float) -> None:
    """SIGKILL the command itself, as an out-of-memory kill would; its children must go by themselves."""
    time.sleep(seconds)
    run.kill()
    run.communicate()


def assert_goes_on(home: Home, undisturbed: list[object], seconds: float) -> None:
    """Kill a run after ``seconds``, resume it, and compare with the undisturbed one."""
    kill_after(home.start(*SMOKE, "--build", "base"), seconds)
    kept = home.manifests()
    for run in run_ids(home) or [""]:
        home.run(*(("run", "--resume", run) if run else (*SMOKE, "--build", "base")))
    after = home.manifests()
    assert {p: after.get(p) for p in kept} == kept, "a kept capture was touched"
    assert tables(home) == undisturbed
    assert len(home.rows("SELECT DISTINCT run_id FROM runs")) == 1


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, prefect_server: str) -> Iterator[Home]:
    """A home with one run to which nothing happened."""
    made = Home(tmp_path_factory.mktemp("finished") / "home", {"PREFECT_API_URL": prefect_server})
    made.run("up", "--store-only")
    made.run(*SMOKE, "--build", "base")
    yield made
    made.run("down")


@pytest.fixture(scope="module")
def undisturbed(finished: Home) -> list[object]:
    """What that run stored."""
    return tables(finished)


@pytest.mark.slow
@pytest.mark.parametrize("lot", range(3))
def test_a_run_killed_at_a_random_moment_goes_on(home: Home, undisturbed: list[object], lot: int) -> None:
    seconds = random.Random(lot).uniform(LONGEST_KILL_S * lot / 3, LONGEST_KILL_S * (lot + 1) / 3)
    assert_goes_on(home, undisturbed, seconds)


@pytest.mark.soak
@pytest.mark.parametrize("lot", range(20))
def test_a_run_killed_at_twenty_random_moments_goes_on(
    home: Home, undisturbed: list[object], lot: int
) -> None:
    assert_goes_on(home, undisturbed, random.Random(100 + lot).uniform(0, LONGEST_KILL_S))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_a_polite_kill_say_how_to_go_on_and_leave_no_process(
    home: Home, number: signal.Signals
) -> None:
    run = home.start(*SMOKE)
    _wait_for(lambda: bool(home.manifests()))
    run.send_signal(number)
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 130
    (run_id,) = run_ids(home)
    assert f"tilewatch run --resume {run_id}" in said
    assert "Traceback" not in said
    _wait_for(lambda: not _measuring(home.path))


@pytest.mark.slow
def test_the_object_store_killed_in_the_middle_is_started_again_and_nothing_is_lost(
    home: Home, undisturbed: list[object]
) -> None:
    run = home.start(*SMOKE, "--build", "base")
    _wait_for(lambda: bool(home.manifests()))
    os.kill(seaweed.status(Settings(home=home.path)).pid, signal.SIGKILL)
    said, _ = run.communicate(timeout=200)
    assert run.returncode == 0, said
    assert tables(home) == undisturbed


def test_resuming_a_finished_run_measures_nothing_and_stores_nothing_twice(
    finished: Home, undisturbed: list[object]
) -> None:
    (run_id,) = run_ids(finished)
    kept = finished.manifests()
    finished.run("run", "--resume", run_id)
    assert tables(finished) == undisturbed and finished.manifests() == kept


def _wait_for(condition: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def _measuring(home: Path) -> list[str]:
    """Command lines of measuring programs of this home."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode().replace("\0", " ")
        except OSError:
            continue
        if "program/main.py" in line and str(home) in line:
            found.append(line)
    return found
