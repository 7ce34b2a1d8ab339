"""Agents and the server are killed mid-sweep; nothing is lost, doubled, or measured at once."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.prefect_settings import own_api, server
from infra.services.device_agent import agent
from tests.flows.conftest import Home

REQUEST = {"experiments": ["A"], "preset": "smoke", "arm": "standalone", "seed": 7}
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class Site:
    """One machine after `tilewatch up`, and what can be done to it."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.queue = f"{os.uname().nodename}-0"

    def api(self, method: str, path: str, **body: Any) -> Any:
        answer = httpx.request(method, f"{own_api(self.home.path)}{path}", json=body or None, timeout=30)
        answer.raise_for_status()
        return answer.json()

    def schedule(self, flow: str, **request: Any) -> str:
        """Queue a flow run on the device; returns its id."""
        found = self.api("GET", f"/deployments/name/{flow}/{self.queue}")
        path = f"/deployments/{found['id']}/create_flow_run"
        return str(self.api("POST", path, parameters={"request": request}, state={"type": "SCHEDULED"})["id"])

    def state(self, run: str) -> str:
        return str(self.api("GET", f"/flow_runs/{run}")["state_type"])

    def captures(self) -> int:
        return len(self.home.manifests())

    def kill_agent(self) -> None:
        os.kill(agent(self.home.path, 0).state().pid, signal.SIGKILL)

    def kill_server(self) -> None:
        os.killpg(server(self.home.path).state().pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = Home(tmp_path_factory.mktemp("site") / "home")
    home.run("up")
    yield Site(home)
    home.run("down")


def wait_for(condition: Callable[[], bool], seconds: float = 150) -> float:
    """Seconds that it took."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, "waited in vain"
        time.sleep(0.2)
    return time.monotonic() - begun


def intervals(homes: list[Home]) -> list[tuple[int, int]]:
    """When each capture held the device, in Unix ns."""
    found = []
    for home in homes:
        for path in (home.path / "spool").rglob("capture.json"):
            capture = json.loads(path.read_text())
            found.append((capture["started_ns"], capture["ended_ns"]))
    return sorted(found)


def overlaps(found: list[tuple[int, int]]) -> int:
    return sum(after[0] < before[1] for before, after in itertools.pairwise(found))


def survived(site: Site, kills: int, rng: random.Random) -> list[tuple[object, ...]]:
    """Start a sweep, kill an agent ``kills`` times and the server once; the table of what happened."""
    run = site.schedule("sweep", **REQUEST, processes=kills, build=f"killed-{kills}")
    rows: list[tuple[object, ...]] = []
    for number in range(kills):
        before = site.captures()
        wait_for(lambda before=before: site.captures() > before or site.state(run) in FINAL)  # type: ignore[misc]
        time.sleep(rng.uniform(0, 3))
        kept = site.home.manifests()
        victim = site.kill_server if number % 7 == 1 else site.kill_agent
        victim()
        begun = time.monotonic()
        site.home.run("up")
        after = site.home.manifests()
        lost = sum(after.get(path) != kept[path] for path in kept)
        rows.append((victim.__name__, len(kept), lost, f"{time.monotonic() - begun:.1f} s"))
    wait_for(lambda: site.state(run) in FINAL)
    rows.append(("end: " + site.state(run), site.captures(), 0, "–"))
    return rows


def assert_whole(site: Site, kills: int, rows: list[tuple[object, ...]], homes: list[Home]) -> None:
    """Nothing lost, nothing doubled, never two measurements at once; prints the table."""
    print("\nkilled, captures then, lost, recovered after")
    for row in rows:
        print(*row, sep=", ")
    build = f"killed-{kills}"
    (run,) = site.home.rows(
        f"SELECT planned_processes AS planned, accounted_processes AS found FROM runs WHERE build = '{build}'"
    )
    twice = site.home.rows(
        f"SELECT arm, role, process_index FROM captures WHERE build = '{build}' "
        "GROUP BY ALL HAVING count(*) > 1"
    )
    held = intervals(homes)
    print(f"processes planned {run['planned']}, found {run['found']}, doubled {len(twice)}")
    print(f"captures of {len(homes)} homes on one device {len(held)}, overlapping {overlaps(held)}")
    assert rows[-1][0] == "end: COMPLETED" and all(row[2] == 0 for row in rows)
    assert run["planned"] == run["found"] and twice == [] and overlaps(held) == 0


def test_a_sweep_whose_agents_and_server_are_killed_ends_whole(site: Site, tmp_path: Path) -> None:
    other = Home(tmp_path / "home", {"TILEWATCH_LOCK_FOLDER": str(site.home.path / "locks")})
    beside = other.start("run", "A", "--preset", "smoke", "--arm", "standalone")
    rows = survived(site, 3, random.Random(1))
    said, _ = beside.communicate(timeout=200)
    assert beside.returncode == 0, said
    assert_whole(site, 3, rows, [site.home, other])


@pytest.mark.soak
def test_a_sweep_killed_twenty_times_ends_whole(site: Site) -> None:
    rows = survived(site, 20, random.Random(2))
    assert_whole(site, 20, rows, [site.home])
