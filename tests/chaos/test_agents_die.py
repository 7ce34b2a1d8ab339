"""Agents and the server are killed while runs are queued; nothing is lost, doubled, or measured at once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.chaos.scene import FINAL, Site, overlaps, show, wait_for, working
from tests.flows.conftest import Home
from tilewatch.flows.agents.device_agent import agent
from tilewatch.flows.agents.journal import Journal
from tilewatch.flows.experiments import experiments
from tilewatch.flows.steps.parts import publish_document
from tilewatch.flows.steps.prepare import plans, prepare
from tilewatch.flows.steps.requests import SweepRequest
from tilewatch.infra.prefect_settings import server
from tilewatch.infra.raw_zone import captures_of
from tilewatch.infra.spool import RunFolder

pytestmark = pytest.mark.slow

DEVICES = (1, 2, 3, 4)
HOST = os.uname().nodename


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A machine with four simulated dies beside its CPU; Prefect's own limits keep nothing apart."""
    home = Home(tmp_path_factory.mktemp("site") / "home")
    home.run("up")
    dies = {
        "pool": "dies", "device_class": "simulated-Ascend910_9391", "agent": "simulated", "dies_per_card": 1,
        "devices": [{"host": HOST, "device": number} for number in DEVICES],
        "sweep": {"experiments": ["A"], "preset": "smoke", "arm": "standalone"},
    }  # fmt: skip
    fleet = home.path / "fleet.yaml"
    fleet.write_text(yaml.safe_dump({"schema_version": 1, "device_classes": [dies]}))
    home.run("deploy", str(fleet))
    made = Site(home)
    made.lift_limits()
    yield made
    home.run("down")


def planned(site: Site, blocks: int) -> RunFolder:
    """A run of one point with as many blocks as asked for, ready to be measured in parts."""
    asked = SweepRequest(
        experiments=("A",), preset="smoke", build=f"storm-{blocks}", seed=7, arm="standalone",
        processes=blocks, point=first_point(site),
    )  # fmt: skip
    with site.archive() as archive:
        folder = prepare(site.settings, archive, asked, experiments(site.settings))
        publish_document(archive, folder.document)
    return folder


def first_point(site: Site) -> str:
    asked = SweepRequest(experiments=("A",), preset="smoke", arm="standalone")
    plan = plans(asked, experiments(site.settings), seed=1)["A"]
    return str(plan.points["standalone"][0]["point_id"])


def storm(site: Site, guest: Home, runs: int, kills: int, rng: random.Random) -> None:
    """Queue ``runs`` for one device, let two workers take them, kill agent and server meanwhile.

    Asserts that every run ends, that every block is measured and claimed once, and that no two measurements
    overlap.
    """
    folder = planned(site, runs)
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
    wait_for(lambda: len(site.claimed(run_id)) == runs, 60 * runs)
    wait_for(lambda: all(site.state(run) in FINAL for run in queued))
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


def rss_mb(group: int) -> int:
    """Resident memory of a process group."""
    pages = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getpgid(int(process.name)) == group:
                pages += int((process / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


def many(site: Site, runs: int) -> None:
    """Queue ``runs`` over the four dies, a block each; assert that all finish and nothing grows."""
    asked = SweepRequest(
        experiments=("A",), preset="smoke", agent="simulated", build="sim-cann8.5.0", seed=7,
        arm="standalone", processes=min(runs, 100),
    )  # fmt: skip
    queued: list[str] = []
    with site.archive() as archive:
        folders = [
            prepare(site.settings, archive, asked, experiments(site.settings)) for _ in range(-(-runs // 100))
        ]
        for folder in folders:
            publish_document(archive, folder.document)
    pid = server(site.home.path).state().pid
    before_mb = rss_mb(pid)
    for number in range(runs):
        run_id = folders[number // 100].document.run_id
        queue = f"{HOST}-{DEVICES[number % len(DEVICES)]}"
        request = {"run_id": run_id, "blocks": [f"A-{number % 100}"], "queue": queue}
        queued.append(site.queue_run(f"part/{queue}", **request))
    with contextlib.ExitStack() as stack:
        for number in DEVICES:
            stack.enter_context(working(site.home, number))
        took_s = wait_for(lambda: all(site.state(run) in FINAL for run in queued), 60 * runs)
    states = [site.state(run) for run in queued]
    claimed = sum(len(site.claimed(folder.document.run_id)) for folder in folders)
    with site.archive() as archive:
        found = [c for folder in folders for c in captures_of(archive, folder.document, "A")]
    database_mb = (site.home.path / "prefect" / "prefect.db").stat().st_size / 2**20
    logs = [*site.home.path.parent.glob("*-agent.log"), *(site.home.path / "services").glob("agent-*.log")]
    locked = sum("database is locked" in path.read_text(errors="replace") for path in logs)
    show([(f"{runs} runs over 4 devices", len(found), runs - claimed, len(found) - len(set(found)), took_s)])
    print(f"server {before_mb} → {rss_mb(pid)} MB, database {database_mb:.1f} MB, locked: {locked}")
    assert states.count("COMPLETED") == runs == claimed and len(set(found)) == len(found) == 2 * runs
    assert locked == 0 and rss_mb(pid) < 2 * before_mb + 200 and database_mb < 20 + runs


@pytest.mark.timeout(900)
def test_ten_queued_runs_over_four_devices_finish(site: Site) -> None:
    many(site, 10)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_hundred_queued_runs_over_four_devices_finish_and_the_server_stays_small(site: Site) -> None:
    many(site, int(os.environ.get("TILEWATCH_SOAK_RUNS", "200")))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_run_whose_worker_and_process_died_is_crashed_by_the_automation(site: Site) -> None:
    site.hasten("tilewatch: a run without heartbeat is crashed", 90)
    whole = {"experiments": ["A"], "preset": "smoke", "arm": "standalone", "processes": 100}
    run = site.queue_run(f"sweep/{HOST}-0", **whole)
    before = len(site.home.manifests())
    wait_for(lambda: len(site.home.manifests()) > before)
    ((flow, _),) = Journal(site.home.path / "agents", f"{HOST}-0").runs().values()
    os.kill(agent(site.home.path, 0).state().pid, signal.SIGKILL)
    os.kill(flow, signal.SIGKILL)
    assert site.state(run) == "RUNNING", "nobody is left to say that it ended"
    took_s = wait_for(lambda: site.state(run) != "RUNNING", 400)
    found = site.api("GET", f"/flow_runs/{run}")["state"]
    show([("worker and flow run killed, nobody came back", 1, 0, 0, took_s)])
    assert found["type"] == "CRASHED" and "no heartbeat" in found["message"]
    site.home.run("up")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_run_whose_process_ends_before_it_begins_is_started_three_more_times(
    site: Site, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    # As while the server is away: the process of a run ends, and that of the agent does not.
    text = "import os\nif 'PREFECT__FLOW_ENTRYPOINT' in os.environ:\n    os._exit(1)\n"
    (broken / "sitecustomize.py").write_text(text)
    guest = site.guest(tmp_path / "home")
    guest.environment["PYTHONPATH"] = str(broken)
    queue = f"{HOST}-{DEVICES[0]}"
    run = site.queue_run(f"part/{queue}", run_id="none", blocks=["A-0"], queue=queue)

    def starts() -> int:
        return sum(s["type"] == "SCHEDULED" for s in site.api("GET", f"/flow_run_states/?flow_run_id={run}"))

    with working(guest, DEVICES[0]):
        wait_for(lambda: starts() == 4, 400)
        wait_for(lambda: site.state(run) == "CRASHED", 200)
