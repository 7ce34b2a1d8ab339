"""`up`, then `deploy` of a fleet that describes the same device otherwise: its agent follows and works."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.flows.conftest import Home

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


def until(condition: Callable[[], bool], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(3)


def test_an_agent_follows_its_device_into_the_pool_of_the_fleet(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    host = os.uname().nodename
    dies = {
        "pool": "dies", "device_class": "simulated-Ascend910_9391", "agent": "simulated",
        "devices": [{"host": host, "device": 0}],
        "sweep": {"experiments": ["A"], "preset": "smoke", "arm": "standalone", "processes": 5},
    }  # fmt: skip
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(yaml.safe_dump({"schema_version": 1, "device_classes": [dies]}))

    def seen() -> dict[str, str]:
        return dict(json.loads(home.run("status", "--json")))

    try:
        home.run("up")
        assert "idle" in seen()[f"queue {host}-0 of pool local"]
        assert f"agent {host}-0 runs here" in home.run("deploy", str(fleet))
        until(lambda: "online" in seen().get(f"queue {host}-0 of pool dies", ""))
        assert f"queue {host}-0 of pool local" not in seen(), "nobody works for it any more"
        known = json.loads((home.path / "agents" / f"{host}-0.build.json").read_text())
        assert known["agent"] == "simulated"
        log = (home.path / "services" / "agent-0.log").read_text()
        assert f"{host}-0 moves from pool local to dies" in log and "Traceback" not in log
    finally:
        home.run("down")
