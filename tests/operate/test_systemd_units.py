"""The units for a team start what exists, with every setting that one machine gets too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.operate.team import HERE, INSTALLED, UNITS, command_of, settings_of
from tilewatch.infra.errors import SettingsError
from tilewatch.infra.placeholders import refuse_placeholders
from tilewatch.infra.prefect_settings import ALWAYS
from tilewatch.infra.settings import PREFIX, Settings


def test_the_server_of_a_team_has_every_mandatory_setting_and_stays_on_loopback() -> None:
    found = settings_of(UNITS / "server.env")
    wanted = {n: v for n, v in ALWAYS.items() if n.startswith(("PREFECT_SERVER", "DO_NOT"))}
    assert {name: found.get(name) for name in wanted} == wanted
    assert found["PREFECT_SERVER_API_HOST"] == "127.0.0.1"
    assert "PREFECT_SERVER_API_AUTH_STRING" in found


@pytest.mark.parametrize("unit", ["server", "agent"])
def test_no_unit_starts_with_a_secret_as_shipped(unit: str, tmp_path: Path) -> None:
    shipped = settings_of(UNITS / f"{unit}.env")
    left = sorted(name for name, value in shipped.items() if "CHANGE-ME" in value)
    assert [name for name in shipped if name.endswith(("AUTH_STRING", "_KEY")) and name not in left] == []
    (start,) = UNITS.glob(f"tilewatch-{unit}*.service")
    assert f"EnvironmentFile=/etc/tilewatch/{unit}.env" in start.read_text()
    environment = {**os.environ, **shipped, "TILEWATCH_HOME": str(tmp_path), "PREFECT_HOME": str(tmp_path)}
    command = [word.replace("%i", "0") for word in command_of(start.name)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    said = " ".join(done.stderr.split())
    assert done.returncode == 2 and f"{', '.join(left)}: still as shipped" in said, said
    assert "RestartPreventExitStatus=2" in start.read_text()
    with pytest.raises(SettingsError, match="PREFECT_API_AUTH_STRING: still as shipped"):
        refuse_placeholders({"PREFECT_API_AUTH_STRING": "user:password", "OTHER": "CHANGE-ME"})


def test_the_environment_of_an_agent_names_settings_that_exist() -> None:
    named = [name for name in settings_of(UNITS / "agent.env") if name.startswith(PREFIX)]
    assert [n for n in named if n.removeprefix(PREFIX).lower() not in Settings.model_fields] == []


def test_an_agent_is_given_longer_to_stop_than_it_gives_its_run() -> None:
    unit = (UNITS / "tilewatch-agent@.service").read_text()
    drain = re.search(r"--drain-s (\d+)", unit)
    stop = re.search(r"TimeoutStopSec=(\d+)", unit)
    assert drain and stop and int(stop[1]) >= int(drain[1]) + 30
    assert "KillMode=mixed" in unit


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze: apt-get install systemd")
    for unit in UNITS.glob("*.service"):
        text = unit.read_text().replace(INSTALLED, HERE)
        (tmp_path / unit.name.replace("@", "@0")).write_text(text)
    units = [str(path) for path in tmp_path.iterdir()]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr, len(units)) == (0, "", 2)
