"""Only another build on the same device is an upgrade: a first contact and a move between pools are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewatch.flows.agents import agent as module
from tilewatch.flows.agents.journal import Journal
from tilewatch.infra.builds import PresentBuild
from tilewatch.infra.settings import Settings

CPU = PresentBuild("build-of-the-cpu", "cpu x86_64", "")
DIE = PresentBuild("build-of-the-die", "simulated-Ascend910_9391", "9.0.0")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Payloads of the events that were emitted."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(module, "emit_event", lambda **event: found.append(event["payload"]))
    return found


def looks(folder: Path, kind: str, found: PresentBuild) -> None:
    """An agent of this home starts on a device of that kind and sees that build."""
    options = module.AgentOptions(device=0, drain_s=1, watch_s=1)
    seeing = module._Agent(Settings(home=folder), options, "lab-0", Journal(folder, "lab-0"))
    seeing._kind = kind
    seeing._note(found)


def test_a_first_contact_and_a_move_to_another_class_are_no_upgrade(
    tmp_path: Path, told: list[dict[str, Any]]
) -> None:
    looks(tmp_path, "cpu", CPU)
    looks(tmp_path, "simulated", DIE)
    assert told == []


def test_another_build_on_the_same_device_is_one(tmp_path: Path, told: list[dict[str, Any]]) -> None:
    looks(tmp_path, "simulated", replace(DIE, build_id="older", cann="8.5.0"))
    looks(tmp_path, "simulated", DIE)
    looks(tmp_path, "simulated", DIE)
    assert [(p["old_build_id"], p["new_build_id"], p["old_cann"], p["new_cann"]) for p in told] == [
        ("older", "build-of-the-die", "8.5.0", "9.0.0")
    ]
