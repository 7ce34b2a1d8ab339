"""A team's fleet on this machine: server, deployments and agents as `infra/systemd/` starts them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import yaml

from tests.flows.conftest import Home
from tests.operate.team import Team, team
from tilewatch.flows.experiments import experiments
from tilewatch.flows.steps.prepare import plans
from tilewatch.flows.steps.requests import SweepRequest
from tilewatch.infra.objects import Endpoint
from tilewatch.infra.settings import Settings
from tilewatch.tasks.simulate.builds import simulated_build

ENOUGH = ("run", "A", "--preset", "smoke", "--arm", "standalone", "--processes", "5", "--seed", "7")
HOST = os.uname().nodename
QUEUE, DIES = f"{HOST}-0", (f"{HOST}-1", f"{HOST}-2", f"{HOST}-3")
OLD, NEW = "sim-cann8.5.0", "sim-cann9.0.0"
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, new_bucket: Callable[[], Endpoint]) -> Iterator[Team]:
    """The server of a team, on PostgreSQL where this machine has it, with an external store of its own."""
    with team(tmp_path_factory.mktemp("team"), new_bucket()) as running:
        yield running


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory, site: Team) -> Home:
    """A home with one run of build ``base``: one point, with as many processes as a baseline needs."""
    made = Home(tmp_path_factory.mktemp("operate") / "home", site.environment)
    made.run(*ENOUGH, "--build", "base", "--point", first_point(), timeout=800)
    return made


def first_point() -> str:
    """The first point of what ENOUGH measures."""
    asked = SweepRequest(experiments=("A",), preset="smoke", arm="standalone")
    plan = plans(asked, experiments(Settings()), seed=1)["A"]
    return str(plan.points["standalone"][0]["point_id"])


class Server:
    """What a person would look up on the Prefect server."""

    def __init__(self, url: str, auth: httpx.Auth) -> None:
        self._client = httpx.Client(base_url=url, auth=auth, timeout=30)

    def find(self, kind: str, **body: Any) -> list[dict[str, Any]]:
        answer = self._client.post(f"/{kind}/filter", json=body)
        answer.raise_for_status()
        return list(answer.json())

    def deployment(self, name: str) -> dict[str, Any]:
        answer = self._client.get(f"/deployments/name/{name}")
        answer.raise_for_status()
        return dict(answer.json())

    def runs(self, deployment: str) -> list[dict[str, Any]]:
        wanted = {"id": {"any_": [self.deployment(deployment)["id"]]}}
        return self.find("flow_runs", deployments=wanted, sort="EXPECTED_START_TIME_ASC")

    def start(self, deployment: str, **body: Any) -> httpx.Response:
        path = f"/deployments/{self.deployment(deployment)['id']}/create_flow_run"
        # 503 is SQLite busy with another writer; Prefect's own clients ask again, and so does this one.
        for _ in range(10):
            answer = self._client.post(path, json={"state": {"type": "SCHEDULED"}, **body})
            if answer.status_code != 503:
                break
            time.sleep(1)
        return answer

    def state(self, run: dict[str, Any]) -> dict[str, Any]:
        return dict(self._client.get(f"/flow_runs/{run['id']}").json()["state"])

    def put(self, run: dict[str, Any], kind: str, message: str = "") -> None:
        """Put the run in a state, such as PENDING, as an agent or a process does."""
        body = {"state": {"type": kind, "name": kind.capitalize(), "message": message}, "force": True}
        self._client.post(f"/flow_runs/{run['id']}/set_state", json=body).raise_for_status()

    def heartbeat(self, run: dict[str, Any]) -> None:
        """Send what the process of a run sends every 30 s."""
        event = {
            "id": str(uuid4()), "occurred": datetime.now(UTC).isoformat(), "payload": {}, "related": [],
            "event": "prefect.flow-run.heartbeat",
            "resource": {"prefect.resource.id": f"prefect.flow-run.{run['id']}"},
        }  # fmt: skip
        self._client.post("/events", json=[event]).raise_for_status()

    def done(self, run: dict[str, Any], seconds: float = 240) -> dict[str, Any]:
        """The final state of the run."""
        wait_for(lambda: self.state(run)["type"] in FINAL, seconds)
        return self.state(run)

    def pause(self, deployment: str) -> None:
        path = f"/deployments/{self.deployment(deployment)['id']}/pause_deployment"
        self._client.post(path).raise_for_status()

    def events(self, name: str, resource: str) -> list[dict[str, Any]]:
        """Events of that name about that resource."""
        wanted = {"event": {"name": [name]}, "resource": {"id": [resource]}}
        answer = self._client.post("/events/filter", json={"filter": wanted})
        answer.raise_for_status()
        return list(answer.json()["events"])

    def hasten(self, automation: str, within_s: float) -> None:
        """Let a proactive automation wait for so long only."""
        (found,) = [one for one in self.find("automations") if one["name"] == automation]
        found["trigger"]["within"] = within_s
        kept = {key: found[key] for key in ("name", "description", "enabled", "tags", "trigger", "actions")}
        self._client.put(f"/automations/{found['id']}", json=kept).raise_for_status()

    def disable(self, automation: str) -> None:
        """Keep the automation from acting."""
        (found,) = [one for one in self.find("automations") if one["name"] == automation]
        self._client.patch(f"/automations/{found['id']}", json={"enabled": False}).raise_for_status()

    def artifact(self, key: str) -> dict[str, Any]:
        """The newest artifact of that key."""
        return self.find("artifacts", artifacts={"key": {"any_": [key]}}, sort="CREATED_DESC")[0]


@pytest.fixture(scope="session")
def server(site: Team) -> Server:
    return Server(site.api_url, site.auth)


@pytest.fixture(scope="session")
def device_class(measured: Home) -> str:
    return str(measured.rows("SELECT device_class FROM runs WHERE build = 'base'")[0]["device_class"])


@pytest.fixture(scope="session")
def fleet(measured: Home, device_class: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This machine as a fleet, armed and deployed.

    Device 0 is its CPU, with a regression that measures one point every 15 s. Devices 1 to 3 are simulated
    dies; no agent works for the last one. A host elsewhere is said to have a device of another class.
    """
    smoke = {"experiments": ["A"], "preset": "smoke", "arm": "standalone"}
    cpu = {
        "pool": "operate", "device_class": device_class, "agent": "cpu",
        "sweep": {**smoke, "point": first_point(), "processes": 5},
        "devices": [{"host": HOST, "device": 0}], "regressions": [{"name": "often", "every_s": 15}],
    }  # fmt: skip
    npu = {
        "pool": "simulated", "device_class": "simulated-Ascend910_9391", "agent": "simulated",
        "sweep": {**smoke, "processes": 5, "build": NEW}, "dies_per_card": 1,
        "devices": [{"host": HOST, "device": number} for number in (1, 2, 3)],
    }  # fmt: skip
    wrong = {
        "pool": "wrong", "device_class": "Ascend910C", "agent": "cpu", "sweep": smoke,
        "devices": [{"host": "elsewhere", "device": 0}],
    }  # fmt: skip
    path = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
    path.write_text(yaml.safe_dump({"schema_version": 1, "device_classes": [cpu, npu, wrong]}))
    die = Home(measured.path, {**measured.environment, "TILEWATCH_DEVICE": "1"})
    die.run(*ENOUGH, "--agent", "simulated", "--build", OLD)
    for build in ("base", OLD):
        measured.run("baseline", "approve", build, "--reason", "for the fleet")
    measured.run("deploy", str(path))
    return path


@contextlib.contextmanager
def started(home: Home, device: int) -> Iterator[subprocess.Popen[str]]:
    """An agent of this host, stopped afterwards."""
    with (home.path / f"agent-{device}.log").open("w") as log:
        process = home.start("agent", "start", "--device", str(device), "--drain-s", "1", stdout=log)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(timeout=90)


@pytest.fixture(scope="session")
def agents(measured: Home, fleet: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """The agents of devices 0 to 2; that of device 1 last saw the old build."""
    before = {"build_id": simulated_build(OLD).build_id, "cann": "8.5.0"}
    folder = measured.path / "agents"
    folder.mkdir(exist_ok=True)
    (folder / f"{DIES[0]}.build.json").write_text(json.dumps(before))
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(started(measured, device)) for device in range(3)]


@pytest.fixture
def agent(agents: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    """The agent of the CPU."""
    return agents[0]


def ended(server: Server, agent: subprocess.Popen[str], deployment: str) -> dict[str, Any]:
    """The first run of the deployment, when it has come to an end."""
    deadline = time.monotonic() + 240
    while not (found := [r for r in server.runs(deployment) if r["state_type"] in FINAL]):
        assert agent.poll() is None, "the agent ended"
        assert time.monotonic() < deadline, f"no run of {deployment} ended"
        time.sleep(0.5)
    return found[0]


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> float:
    """Seconds that it took."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, "waited in vain"
        time.sleep(0.2)
    return time.monotonic() - begun
