"""Experiment E from command line to page: three arms, a fresh proved server each, killed and resumed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.flows.conftest import Home
from tests.serving.conftest import EXPERIMENTS
from tests.serving.test_launch_faults import processes_of
from tilewatch.infra.archive import open_archive
from tilewatch.infra.settings import Settings

ARMS = ("w8a8_nz", "w8a8_nd", "bf16")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass
class Ran:
    """A run of three arms that was killed after its first launch and then resumed to its end."""

    home: Home
    run_id: str
    said: str
    kept: dict[Path, tuple[int, bytes]]

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Answer of the archive's tables."""
        with open_archive(Settings(home=self.home.path)) as archive:
            return list(archive.tables.query(sql).to_pylist())


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, prefect_server: str) -> Iterator[Ran]:
    """Runs it once for the module."""
    folder = tmp_path_factory.mktemp("serving")
    home = Home(
        folder / "home",
        {"PREFECT_API_URL": prefect_server, "TILEWATCH_EXPERIMENTS": str(_tiny(folder / "experiments"))},
    )
    first = home.start("run", "E", "--preset", "smoke", "--seed", "3")
    deadline = time.monotonic() + 300
    while not home.manifests() and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    (run_folder,) = (home.path / "spool").iterdir()
    while processes_of(run_folder.name) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(run_folder.name) == {}, "a killed run left a server behind"
    kept = home.manifests()
    said = home.run("run", "--resume", run_folder.name, timeout=600)
    yield Ran(home, run_folder.name, said, kept)
    home.run("down")


def _tiny(folder: Path) -> Path:
    """The experiment files with the smallest load that has phases."""
    shutil.copytree(EXPERIMENTS, folder)
    path = folder / "serving.yaml"
    load = "{input_tokens: 32, output_tokens: 8, prompts: 4, max_concurrency: 2,"
    tiny = "{input_tokens: 16, output_tokens: 4, prompts: 2, max_concurrency: 2,"
    text = path.read_text()
    assert load in text
    path.write_text(text.replace(load, tiny).replace("profile_prompts: 3", "profile_prompts: 2"))
    return folder


def _launches(ran: Ran) -> list[dict[str, Any]]:
    return ran.rows(f"SELECT * FROM launches WHERE run_id = '{ran.run_id}' ORDER BY started_ns")


def test_every_launch_is_a_server_of_its_own_with_its_arm_proved(ran: Ran) -> None:
    launches = _launches(ran)
    assert sorted((x["arm"], x["role"]) for x in launches) == sorted(
        (arm, role) for arm in ARMS for role in ("timing", "profile")
    )
    assert len({x["server_pid"] for x in launches}) == 6, "a server was used for two launches"
    assert all(x["status"] == "complete" and x["arm_proved"] for x in launches)
    formats = {x["arm"]: x["weight_format"] for x in launches}
    assert formats == {"w8a8_nz": "FRACTAL_NZ", "w8a8_nd": "ND", "bf16": "FRACTAL_NZ"}


def test_a_killed_run_goes_on_and_repeats_only_the_killed_launch(ran: Ran) -> None:
    after = ran.home.manifests()
    assert ran.kept and all(after[path] == before for path, before in ran.kept.items())
    assert len(after) == 6


def test_numbers_are_those_of_timed_launches_and_validate(ran: Ran) -> None:
    rows = ran.rows(
        "SELECT arm, role, count(*) AS n, min(value) AS least FROM serving_metrics GROUP BY ALL ORDER BY arm"
    )
    assert [(r["arm"], r["role"]) for r in rows] == [(arm, "timing") for arm in sorted(ARMS)]
    assert all(r["n"] == 26 and r["least"] >= 0 for r in rows)
    counted = ran.rows("SELECT role, count(*) AS n FROM requests WHERE ok GROUP BY ALL ORDER BY role")
    assert counted == [{"role": "profile", "n": 6}, {"role": "timing", "n": 6}]


def test_phases_come_from_the_profiled_launches(ran: Ran) -> None:
    rows = ran.rows(
        "SELECT arm, phase, sum(exposed_ns) AS exposed, max(step_ns) AS step FROM phase_costs GROUP BY ALL"
    )
    assert {(r["arm"], r["phase"]) for r in rows} == {(a, p) for a in ARMS for p in ("prefill", "decode")}
    assert all(abs(r["exposed"] - r["step"]) <= max(0.001 * r["step"], 1000) for r in rows)


def test_the_page_stands_where_the_run_says(ran: Ran) -> None:
    page = ran.home.path / "reports" / ran.run_id / "serving.html"
    assert page.is_file() and str(page) in ran.said and "w8a8_nz" in ran.said


@pytest.mark.soak
def test_the_reading_verbs_and_a_rebuild_know_the_run(ran: Ran) -> None:
    assert "Launches" in ran.home.run("show", ran.run_id)
    (listed,) = json.loads(ran.home.run("runs", "--json"))
    assert (listed["experiment"], listed["status"], listed["missing_points"]) == ("E", "complete", 0)
    assert "rules over" in ran.home.run("validate", ran.run_id)
    before = _launches(ran)
    ran.home.run("reanalyse", ran.run_id)
    assert _launches(ran) == before
