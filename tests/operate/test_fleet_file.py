"""A mistake in the fleet file is named with file, field and what is wrong; nothing is deployed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewatch.flows.deployments.check import check_fleet
from tilewatch.flows.deployments.fleet import read_fleet
from tilewatch.flows.deployments.recipes import recipes
from tilewatch.infra.errors import SettingsError
from tilewatch.infra.settings import Settings

GOOD = """
schema_version: 1
device_classes:
  - pool: npu
    device_class: Ascend910C
    agent: npu
    devices: [{host: lab-1, device: 0}, {host: lab-1, device: 1}]
    sweep: {experiments: [B]}
    regressions: [{name: nightly, cron: "0 3 * * *", queue: lab-1-1}]
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "pool: npu",
            "pool: npu\n    speed: 3",
            ":5: device_classes[0].speed: unknown key; allowed here: agent, ",
        ),
        (
            "agent: npu",
            "agnet: npu",
            ":6: device_classes[0].agnet: unknown key; allowed here: agent, device_class",
        ),
        ("device: 0", "device: 1", "lab-1-1 occurs more than once"),
        ("0 3 * * *", "0 25 * * *", "device_classes[0].regressions[0].cron: '0 25 * * *' is not usable"),
        ("queue: lab-1-1", "timezone: Mars/Olympus", "timezone: 'Mars/Olympus' is not usable"),
        ("queue: lab-1-1", "queue: lab-9-9", "queue lab-9-9 is not a device of pool npu"),
        ('cron: "0 3 * * *", ', "", "give either cron or every_s"),
        ("experiments: [B]", "preset: enormous", "device_classes[0].sweep.preset"),
        ("agent: npu", "agent: [", ":8: not YAML"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(SettingsError) as raised:
        read_fleet(path)
    assert said in str(raised.value) and str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ("{experiments: [B, Q]}", "device_classes[0].sweep: no experiment Q; known: A, B, C, D, E"),
        ("{experiments: [B], arm: nosuch}", "device_classes[0].sweep: experiment B: no arm 'nosuch'"),
        (
            "{experiments: [B], preset: smoke}",
            "measures 2 processes an arm of B, and a baseline and a verdict need 5",
        ),
    ],
)
def test_what_would_fail_at_night_is_refused_before_anything_is_deployed(
    tmp_path: Path, sweep: str, said: str
) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(GOOD.replace("{experiments: [B]}", sweep))
    with pytest.raises(SettingsError) as raised:
        check_fleet(Settings(home=tmp_path), read_fleet(path))
    assert said in str(raised.value)


def test_a_fleet_whose_sweeps_can_be_planned_and_judged_passes(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(GOOD.replace("{experiments: [B]}", "{experiments: [B, E], preset: smoke, processes: 5}"))
    check_fleet(Settings(home=tmp_path), read_fleet(path))


def test_every_device_has_its_queue_and_a_schedule_runs_on_the_device_it_names(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(GOOD)
    made = {(r.flow, r.name): r for r in recipes(read_fleet(path))}
    assert {name for flow, name in made if flow == "sweep"} == {"lab-1-0", "lab-1-1", "npu"}
    nightly = made["regression", "nightly"]
    assert (nightly.pool, nightly.queue, nightly.when) == ("npu", "lab-1-1", "0 3 * * * UTC")
    assert nightly.parameters["request"]["sweep"]["agent"] == "npu"
    assert nightly.parameters["request"]["baseline"] == "@baseline"
    assert "device-class:Ascend910C" in nightly.tags


def test_the_sweep_of_a_class_is_shared_by_one_die_of_every_card(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    numbers = [("lab-1", 0), ("lab-1", 1), ("lab-1", 2), ("lab-2", 1)]
    devices = str([{"host": host, "device": number} for host, number in numbers])
    path.write_text(
        GOOD.replace("[{host: lab-1, device: 0}, {host: lab-1, device: 1}]", devices).replace(
            "Ascend910C", "Ascend910_9391"
        )
    )
    of_class = {(r.flow, r.name): r for r in recipes(read_fleet(path))}["sweep", "npu"]
    assert of_class.parameters["request"]["devices"] == ["lab-1-0", "lab-1-2", "lab-2-1"]
