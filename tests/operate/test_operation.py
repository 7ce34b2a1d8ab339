"""A fleet that runs by itself: a schedule fires, a changed build starts the upgrade run, an agent drains."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tasks.simulate.builds import simulated_build
from tests.flows.conftest import Home
from tests.operate.conftest import ENOUGH

HOST = os.uname().nodename
QUEUE, SIMULATED_QUEUE = f"{HOST}-0", f"{HOST}-1"
OLD, NEW = "sim-cann8.5.0", "sim-cann9.0.0"
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class Server:
    """What a person would look up on the Prefect server."""

    def __init__(self, url: str) -> None:
        self._url = url

    def find(self, kind: str, **body: Any) -> list[dict[str, Any]]:
        answer = httpx.post(f"{self._url}/{kind}/filter", json=body, timeout=30)
        answer.raise_for_status()
        return list(answer.json())

    def deployment(self, name: str) -> dict[str, Any]:
        answer = httpx.get(f"{self._url}/deployments/name/{name}", timeout=30)
        answer.raise_for_status()
        return dict(answer.json())

    def runs(self, deployment: str) -> list[dict[str, Any]]:
        wanted = {"id": {"any_": [self.deployment(deployment)["id"]]}}
        return self.find("flow_runs", deployments=wanted, sort="EXPECTED_START_TIME_ASC")

    def start(self, deployment: str, **body: Any) -> httpx.Response:
        path = f"{self._url}/deployments/{self.deployment(deployment)['id']}/create_flow_run"
        # 503 is SQLite busy with another writer; Prefect's own clients ask again, and so does this one.
        for _ in range(10):
            answer = httpx.post(path, json={"state": {"type": "SCHEDULED"}, **body}, timeout=30)
            if answer.status_code != 503:
                break
            time.sleep(1)
        return answer

    def state(self, run: dict[str, Any]) -> dict[str, Any]:
        return dict(httpx.get(f"{self._url}/flow_runs/{run['id']}", timeout=30).json()["state"])

    def pause(self, deployment: str) -> None:
        path = f"{self._url}/deployments/{self.deployment(deployment)['id']}/pause_deployment"
        httpx.post(path, timeout=30).raise_for_status()


@pytest.fixture(scope="module")
def server(prefect_server: str) -> Server:
    return Server(prefect_server)


@pytest.fixture(scope="module")
def device_class(measured: Home) -> str:
    return str(measured.rows("SELECT device_class FROM runs WHERE build = 'base'")[0]["device_class"])


@pytest.fixture(scope="module")
def fleet(measured: Home, device_class: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This machine as a fleet, armed and deployed.

    Device 0 is its CPU, with a regression that measures one point every 15 s; device 1 is a simulated NPU.
    """
    point = measured.rows("SELECT point_id FROM points WHERE build = 'base' ORDER BY axis_value LIMIT 1")[0][
        "point_id"
    ]
    smoke = {"experiments": ["A"], "preset": "smoke", "arm": "standalone"}
    cpu = {
        "pool": "operate", "device_class": device_class, "agent": "cpu", "sweep": {**smoke, "point": point},
        "devices": [{"host": HOST, "device": 0}], "regressions": [{"name": "often", "every_s": 15}],
    }  # fmt: skip
    npu = {
        "pool": "simulated", "device_class": "simulated-Ascend910_9391", "agent": "simulated",
        "sweep": {**smoke, "processes": 5, "build": NEW}, "devices": [{"host": HOST, "device": 1}],
    }  # fmt: skip
    path = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
    path.write_text(yaml.safe_dump({"schema_version": 1, "device_classes": [cpu, npu]}))
    measured.run(*ENOUGH, "--agent", "simulated", "--build", OLD)
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


@pytest.fixture(scope="module")
def agents(measured: Home, fleet: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """The agents of both devices; that of the simulated one last saw the old build."""
    before = {"build_id": simulated_build(OLD).build_id, "cann": "8.5.0"}
    folder = measured.path / "agents"
    folder.mkdir(exist_ok=True)
    (folder / f"{SIMULATED_QUEUE}.build.json").write_text(json.dumps(before))
    with started(measured, 0) as cpu, started(measured, 1) as simulated:
        yield [cpu, simulated]


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


def test_deploying_twice_changes_nothing(measured: Home, fleet: Path, server: Server) -> None:
    def all_of_it() -> tuple[list[Any], ...]:
        named = [sorted(one["name"] for one in server.find(k)) for k in ("work_pools", "deployments")]
        return (*named, sorted(one["name"] for one in server.find("automations")))

    before = all_of_it()
    measured.run("deploy", str(fleet))
    assert all_of_it() == before
    assert len(server.deployment("regression/often")["schedules"]) == 1
    (pool,) = [p for p in server.find("work_pools") if p["name"] == "operate"]
    assert (pool["type"], pool["concurrency_limit"]) == ("process", 1)


def test_the_form_of_a_deployment_describes_every_parameter(fleet: Path, server: Server) -> None:
    for name in ("sweep", "regression", "cann_upgrade"):
        schema = server.deployment(f"{name}/{QUEUE}")["parameter_openapi_schema"]
        assert all(
            field.get("description") or "$ref" in field or "allOf" in field
            for model in schema["definitions"].values()
            for field in model["properties"].values()
        )
    wrong = {"request": {"experiments": ["A"], "preset": "enormous"}}
    assert server.start(f"sweep/{QUEUE}", parameters=wrong).status_code == 409


def test_the_schedule_fires_and_the_regression_leaves_its_outcome(
    measured: Home, server: Server, agent: subprocess.Popen[str]
) -> None:
    _wait(lambda: any(run["run_count"] for run in server.runs("regression/often")))
    server.pause("regression/often")
    run = ended(server, agent, "regression/often")
    assert run["state_type"] == "COMPLETED", run["state"]["message"]
    assert run["auto_scheduled"]
    rows = measured.rows("SELECT DISTINCT baseline FROM comparisons WHERE evidence = 'measured'")
    assert rows == [{"baseline": "base"}]
    (artifact,) = server.find("artifacts", artifacts={"key": {"any_": ["regression"]}})[:1]
    assert "comparisons/base/" in artifact["data"]


def test_a_changed_build_is_measured_confirmed_and_explained_without_a_hand(
    server: Server, agents: list[subprocess.Popen[str]]
) -> None:
    run = ended(server, agents[1], f"cann_upgrade/{SIMULATED_QUEUE}")
    assert run["state_type"] == "COMPLETED", run["state"]["message"]
    assert run["created_by"]["type"] == "AUTOMATION"
    request = run["parameters"]["request"]
    assert (request["old_cann"], request["new_cann"]) == ("8.5.0", "9.0.0")
    (told,) = server.find("artifacts", artifacts={"key": {"any_": ["cann-upgrade"]}})[:1]
    assert f"SLOWER than in {OLD}, confirmed in a second lease" in told["data"]
    assert "predicted: DynamicQuant block_dim 16 → 4" in told["data"]
    assert told["data"].count("dynamic_quant wq_a") <= 3 and "tilewatch compare" in told["data"]
    (predicted,) = server.find("artifacts", artifacts={"key": {"any_": ["cann-upgrade-predictions"]}})[:1]
    assert "predicted for CANN 8.5.0 → 9.0.0" in predicted["description"]


def test_two_flows_that_publish_the_same_comparison_leave_one(
    measured: Home, server: Server, agent: subprocess.Popen[str]
) -> None:
    ended(server, agent, "regression/often")
    (new,) = measured.rows("SELECT DISTINCT build FROM runs WHERE agent = 'cpu' AND build <> 'base'")
    both = [measured.start("compare", "base", new["build"]) for _ in range(2)]
    said = [one.communicate(timeout=200)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert all(f"comparisons/base/{new['build']}/v1" in text for text in said)
    rows = measured.rows(
        "SELECT version, count(*) AS rows, "
        "count(DISTINCT (experiment, candidate_arm, point_id, metric)) AS keys "
        f"FROM comparisons WHERE candidate = '{new['build']}' GROUP BY version"
    )
    print("\nversions, rows, doubled:", [(r["version"], r["rows"], r["rows"] - r["keys"]) for r in rows])
    assert len(rows) == 1 and rows[0]["rows"] == rows[0]["keys"] > 0


def test_no_secret_of_the_store_is_on_the_server_or_in_a_capture(
    measured: Home, server: Server, agent: subprocess.Popen[str]
) -> None:
    ended(server, agent, "regression/often")
    keys = json.loads((measured.path / "store" / "credentials.json").read_text())
    secrets = [value for name, value in keys.items() if "secret" in name]
    kinds = ("logs", "artifacts", "flow_runs", "deployments", "work_pools")
    told = {kind: json.dumps(server.find(kind)) for kind in kinds}
    files = [path for path in (measured.path / "spool").rglob("*") if path.is_file()]
    told |= {str(path): path.read_bytes().decode(errors="replace") for path in files}
    assert len(told["logs"]) > 1000 and len(files) > 20 and len(secrets) == 2
    assert [where for where, text in told.items() if any(secret in text for secret in secrets)] == []


def test_an_agent_refuses_a_run_for_another_device_class(
    server: Server, agent: subprocess.Popen[str]
) -> None:
    run = server.start(f"sweep/{QUEUE}", tags=["device-class:Ascend950PR"]).raise_for_status().json()
    _wait(lambda: server.state(run)["type"] in FINAL)
    state = server.state(run)
    assert state["type"] == "CRASHED" and "this run is for Ascend950PR" in state["message"]


def test_an_agent_told_to_stop_leaves_no_run_in_running_and_no_process(
    measured: Home, server: Server, agent: subprocess.Popen[str]
) -> None:
    whole = {"experiments": ["A"], "preset": "smoke", "arm": "standalone", "processes": 20}
    before = len(measured.manifests())
    run = server.start(f"sweep/{QUEUE}", parameters={"request": whole}).raise_for_status().json()
    _wait(lambda: len(measured.manifests()) > before)
    agent.send_signal(signal.SIGTERM)
    agent.wait(timeout=90)
    assert agent.returncode == 0
    assert server.state(run)["type"] == "CRASHED"
    assert not [p for p in _commands() if str(measured.path) in p and "program/main.py" in p]


def test_an_agent_of_a_device_that_the_fleet_lacks_or_calls_something_else_does_not_start(
    measured: Home, fleet: Path, tmp_path: Path
) -> None:
    measured.run("agent", "start", "--device", "7", code=3)
    assert "has no device" in measured.stderr and "tilewatch deploy" in measured.stderr
    body = yaml.safe_load(fleet.read_text())
    body["device_classes"][0] |= {
        "pool": "wrong", "device_class": "Ascend910C", "regressions": [],
        "devices": [{"host": "elsewhere", "device": 0}],
    }  # fmt: skip
    other = tmp_path / "fleet.yaml"
    other.write_text(yaml.safe_dump(body))
    measured.run("deploy", str(other))
    measured.run("agent", "start", "--device", "0", "--host", "elsewhere", code=3)
    assert "the fleet says that elsewhere-0 is Ascend910C" in measured.stderr


def _commands() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().decode().replace("\0", " "))
        except OSError:
            continue
    return found


def _wait(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.3)
