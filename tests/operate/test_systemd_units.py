"""The units for a team start what exists, with every setting that one machine gets too."""

from __future__ import annotations

import re
from pathlib import Path

from infra.prefect_settings import ALWAYS
from infra.settings import PREFIX, Settings

UNITS = Path("infra/systemd")


def settings_of(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_the_server_of_a_team_has_every_mandatory_setting_and_stays_on_loopback(repository: Path) -> None:
    found = settings_of(repository / UNITS / "server.env")
    wanted = {n: v for n, v in ALWAYS.items() if n.startswith(("PREFECT_SERVER", "DO_NOT"))}
    assert {name: found.get(name) for name in wanted} == wanted
    assert found["PREFECT_SERVER_API_HOST"] == "127.0.0.1"
    assert "PREFECT_SERVER_API_AUTH_STRING" in found


def test_the_environment_of_an_agent_names_settings_that_exist(repository: Path) -> None:
    named = [name for name in settings_of(repository / UNITS / "agent.env") if name.startswith(PREFIX)]
    assert [n for n in named if n.removeprefix(PREFIX).lower() not in Settings.model_fields] == []


def test_an_agent_is_given_longer_to_stop_than_it_gives_its_run(repository: Path) -> None:
    unit = (repository / UNITS / "tilewatch-agent@.service").read_text()
    drain = re.search(r"--drain-s (\d+)", unit)
    stop = re.search(r"TimeoutStopSec=(\d+)", unit)
    assert drain and stop and int(stop[1]) >= int(drain[1]) + 30
    assert "KillMode=mixed" in unit
