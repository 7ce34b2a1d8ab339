"""Who has the login of the server still makes no agent run anything but the flows of its own checkout."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.flows.conftest import Home
from tests.operate.conftest import FINAL, HOST
from tests.operate.team import Login
from tilewatch.infra.prefect_settings import own_api
from tilewatch.infra.services.prefect_login import own_login

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PART = {"run_id": "none", "blocks": ["A-0"], "queue": f"{HOST}-0"}
OPEN = {
    "job_configuration": {"command": "{{ command }}", "env": "{{ env }}", "working_dir": "{{ working_dir }}"},
    "variables": {"type": "object", "properties": {
        "command": {"type": "string"}, "env": {"type": "object"}, "working_dir": {"type": "string"},
    }},
}  # fmt: skip
"""A template that passes on whatever a run asks for, as Prefect's own does."""


class Attacker:
    """Somebody with the server's login, on a machine after `tilewatch up`."""

    def __init__(self, home: Home) -> None:
        self.url = str(own_api(home.path))
        self.auth = Login(self.url, own_login(home.path))
        self.client = httpx.Client(base_url=self.url, auth=self.auth, timeout=60)

    def call(self, method: str, path: str, /, **body: Any) -> httpx.Response:
        # 503 is SQLite busy with another writer; Prefect's own clients ask again, and so does this one.
        for _ in range(20):
            answer = self.client.request(method, path, json=body or None)
            if answer.status_code != 503:
                break
            time.sleep(1)
        return answer

    def deployment(self, name: str) -> dict[str, Any]:
        return dict(self.call("GET", f"/deployments/name/{name}/{HOST}-0").raise_for_status().json())

    def ask(self, deployment: dict[str, Any], **body: Any) -> httpx.Response:
        path = f"/deployments/{deployment['id']}/create_flow_run"
        return self.call("POST", path, state={"type": "SCHEDULED"}, **body)

    def outcome(self, answer: httpx.Response) -> dict[str, Any]:
        """The final state of the run that was asked for."""
        run = answer.raise_for_status().json()["id"]
        deadline = time.monotonic() + 300
        while (state := self.call("GET", f"/flow_runs/{run}").json()["state"])["type"] not in FINAL:
            assert time.monotonic() < deadline, state
            time.sleep(0.5)
        return dict(state)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A machine after `tilewatch up`, with its agent."""
    made = Home(tmp_path_factory.mktemp("attacked") / "home")
    made.run("up", timeout=800)
    yield made
    made.run("down")


@pytest.fixture(scope="module")
def attacker(home: Home) -> Attacker:
    return Attacker(home)


@pytest.fixture(scope="module")
def pool_open(attacker: Attacker) -> None:
    """The work pool takes job variables from now on, as who has the login can make it do."""
    attacker.call("PATCH", "/work_pools/local", base_job_template=OPEN).raise_for_status()


def test_the_attack_is_refused_at_every_layer(attacker: Attacker, tmp_path: Path) -> None:
    mark = tmp_path / "reached"
    variables = {"command": f"touch {mark}"}
    part = attacker.deployment("part")
    address = f"{attacker.url}/deployments/{part['id']}/create_flow_run"
    body = {"state": {"type": "SCHEDULED"}, "parameters": {"request": PART}, "job_variables": variables}
    evil = {"Origin": "http://evil.example"}
    assert httpx.post(address, json=body, headers=evil).status_code == 403
    assert httpx.post(address, json=body).status_code == 401
    assert httpx.post(address, json=body, headers=evil, auth=attacker.auth).status_code == 403
    refused = httpx.post(address, json=body, auth=attacker.auth)
    assert refused.status_code == 422 and "Additional properties are not allowed" in refused.text
    assert not mark.exists()


@pytest.mark.usefixtures("pool_open")
@pytest.mark.parametrize(
    "name, value", [("command", "touch {mark}"), ("env", {"BASH_ENV": "{mark}"}), ("working_dir", "/")]
)
def test_a_run_with_foreign_job_variables_is_crashed_by_the_agent_with_their_names(
    attacker: Attacker, tmp_path: Path, name: str, value: Any
) -> None:
    mark = tmp_path / "reached"
    if name == "command":
        value = value.format(mark=mark)
    answer = attacker.ask(
        attacker.deployment("part"), parameters={"request": PART}, job_variables={name: value}
    )
    state = attacker.outcome(answer)
    assert state["type"] == "CRASHED" and f"job variable {name}" in state["message"], state
    assert "RefusedRunError" in state["message"] and not mark.exists()


@pytest.mark.usefixtures("pool_open")
def test_a_deployment_with_another_program_in_it_is_crashed_by_the_agent(
    attacker: Attacker, tmp_path: Path
) -> None:
    mark = tmp_path / "reached"
    step = {"prefect.deployments.steps.run_shell_script": {"script": f"touch {mark}"}}
    flow = tmp_path / "evil.py"
    flow.write_text(f"open({str(mark)!r}, 'w')\ndef part(request): pass\n")
    honest = attacker.deployment("part")
    made = {"flow_id": honest["flow_id"], "work_pool_name": "local", "work_queue_name": f"{HOST}-0"}
    kept = {name: honest[name] for name in ("path", "entrypoint", "pull_steps")}
    for name, change, told in (
        ("steps", {"pull_steps": [step]}, "pull steps"),
        (
            "entrypoint",
            {"entrypoint": "evil.py:part", "path": str(tmp_path)},
            "entrypoint evil.py:part",
        ),
        ("climbs", {"entrypoint": "../evil.py:part"}, "entrypoint ../evil.py:part"),
        ("variables", {"job_variables": {"command": f"touch {mark}"}}, "job variable command"),
    ):
        body = {**made, **kept, "name": name, **change}
        deployment = attacker.call("POST", "/deployments/", **body).raise_for_status().json()
        state = attacker.outcome(attacker.ask(deployment, parameters={"request": PART}))
        assert state["type"] == "CRASHED" and told in state["message"], state
    assert not mark.exists()


def test_a_server_names_builds_by_label_and_files_below_allowed_folders_alone(
    attacker: Attacker, home: Home, tmp_path: Path
) -> None:
    mark = tmp_path / "reached"
    script = tmp_path / "set_env.sh"
    script.write_text(f"touch {mark}\n")
    sweep = {"experiments": ["A"], "preset": "smoke", "arm": "standalone"}
    for build in ({"label": "new", "set_env": str(script)}, {"label": "new"}):
        asked = {**sweep, "environments": [build]}
        state = attacker.outcome(attacker.ask(attacker.deployment("sweep"), parameters={"request": asked}))
        assert state["type"] == "FAILED" and "this host has no environment 'new'" in state["message"], state
    for path in (str(script), f"{home.path}/ingest/../config.yaml", "/etc"):
        asked = {"paths": [path]}
        state = attacker.outcome(attacker.ask(attacker.deployment("ingest"), parameters={"request": asked}))
        assert state["type"] == "FAILED" and "not below a folder that this host" in state["message"], state
    for flow, request in (
        ("sweep", {**sweep, "resume": "../../../tmp"}),
        ("part", {**PART, "run_id": "../../../tmp"}),
        ("part", {**PART, "blocks": ["../A-0"]}),
        ("part", {**PART, "queue": "../x"}),
    ):
        answer = attacker.ask(attacker.deployment(flow), parameters={"request": request})
        assert answer.status_code in (409, 422), answer.text
    assert not mark.exists()
