"""Agents and the server are killed while runs are queued; nothing is lost, doubled, or measured at once."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.requests import SweepRequest
from flows.sweep import experiments, options
from infra.pipeline.archive import captures_of
from infra.pipeline.parts import publish_document
from infra.pipeline.prepare import prepare
from infra.spool import RunFolder
from tests.chaos.scene import FINAL, Site, overlaps, show, wait_for, working
from tests.flows.conftest import Home


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = Home(tmp_path_factory.mktemp("site") / "home")
    home.run("up")
    made = Site(home)
    made.lift_limits()
    yield made
    home.run("down")


def planned(site: Site, blocks: int, agent: str) -> RunFolder:
    """A run of one arm with as many blocks as asked for, ready to be measured in parts."""
    build = "sim-cann8.5.0" if agent == "simulated" else f"storm-{blocks}"
    asked = SweepRequest(
        experiments=("A",), preset="smoke", agent=agent, build=build, seed=7, arm="standalone",
        processes=blocks, point=first_point(site),
    )  # fmt: skip
    with site.archive() as archive:
        folder = prepare(site.settings, archive, options(asked), experiments(site.settings))
        publish_document(archive, folder.document)
    return folder


def first_point(site: Site) -> str:
    from infra.pipeline.prepare import plans

    asked = SweepRequest(experiments=("A",), preset="smoke", arm="standalone")
    plan = plans(options(asked), experiments(site.settings), seed=1)["A"]
    return str(plan.points["standalone"][0]["point_id"])


def storm(site: Site, guest: Home, runs: int, kills: int, rng: random.Random) -> None:
    """Queue ``runs`` for one device, let two workers take them, kill agent and server meanwhile.

    Asserts that every run ends, that every block is measured and claimed once, and that no two measurements
    overlap.
    """
    folder = planned(site, runs, "cpu")
    run_id = folder.document.run_id
    wanted = {"run_id": run_id, "queue": site.queue, "build": folder.document.build}
    queued = [site.queue_run(f"part/{site.queue}", **wanted, blocks=[f"A-{n}"]) for n in range(runs)]
    rows: list[tuple[object, ...]] = []
    for number in range(kills):
        before = len(site.claimed(run_id))
        wait_for(lambda before=before: len(site.claimed(run_id)) > before)  # type: ignore[misc]
        time.sleep(rng.uniform(0, 3))
        kept = site.home.manifests()
        victim = site.kill_server if number % 7 == 1 else site.kill_agent
        done = len(site.claimed(run_id))
        victim()
        begun = time.monotonic()
        site.home.run("up")
        wait_for(lambda done=done: len(site.claimed(run_id)) > done or done == runs)  # type: ignore[misc]
        after = site.home.manifests()
        lost = sum(after.get(path) != kept[path] for path in kept)
        rows.append((victim.__name__, len(kept), lost, 0, time.monotonic() - begun))
    wait_for(lambda: all(site.state(run) in FINAL for run in queued), 60 * runs)
    states = {site.state(run) for run in queued}
    claimed = site.claimed(run_id)
    with site.archive() as archive:
        found = captures_of(archive, folder.document, "A")
    rows.append((f"two workers on one device: {runs} runs", len(found), runs - len(claimed),
                 len(found) - len(set(found)), 0.0))  # fmt: skip
    captures, overlapping = overlaps([site.home, guest])
    show(rows)
    print(f"captures on one device {captures}, overlapping {overlapping}; runs ended {sorted(states)}")
    assert states == {"COMPLETED"} and len(claimed) == runs == len(found) == len(set(found))
    assert all(row[2] == row[3] == 0 for row in rows) and overlapping == 0 and captures >= runs


@pytest.mark.timeout(900)
def test_ten_queued_runs_survive_three_kills_with_two_workers_on_one_device(
    site: Site, tmp_path: Path
) -> None:
    guest = site.guest(tmp_path / "guest")
    with working(guest, 0):
        storm(site, guest, 10, 3, random.Random(1))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_fifty_queued_runs_survive_twenty_kills(site: Site, tmp_path: Path) -> None:
    guest = site.guest(tmp_path / "guest")
    with working(guest, 0):
        storm(site, guest, 50, 20, random.Random(2))
