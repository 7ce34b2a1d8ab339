"""A launch that goes wrong says where and why, leaves no process behind, and is a capture all the same."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.serving.conftest import launch_of
from tilewatch.tasks.measure.serving.capture import LaunchFacts
from tilewatch.tasks.measure.serving.kept import MARK, StartError, kept
from tilewatch.tasks.measure.serving.launch import run_launch
from tilewatch.tasks.measure.serving.processes import LOOPBACK, free_port, marked
from tilewatch.tasks.plan.serving_plan import ServingPlan


def faulty(plan: ServingPlan, fault: str | None = None, **load: Any) -> ServingPlan:
    """The smoke plan with a fault of the reference server, no warm-up, and a changed load."""
    words = [*plan.server["command"], *(["--fault", fault] if fault else [])]
    server = {**plan.server, "command": words}
    return replace(plan, server=server, load={**plan.load, "warm_up_requests": 0, **load})


def processes_of(run_id: str) -> dict[int, str]:
    """Living processes that a launch of the run started, by the mark in their environment: pid to command."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if f"{MARK}={run_id}".encode() in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


class Launched:
    """The capture of a launch that was run to its end, with nothing of it left."""

    def __init__(
        self, plan: ServingPlan, facts: LaunchFacts, folder: Path, arm: str, role: str = "timing",
        port: int | None = None,
    ) -> None:  # fmt: skip
        own = replace(facts, run_id=uuid.uuid4().hex)
        self.outcome = run_launch(plan, launch_of(plan, arm, role), folder, own, port=port)
        assert processes_of(own.run_id) == {}, "a process was left over"
        assert (folder / "manifest.json").is_file()
        self.launch = json.loads((folder / "launch.json").read_text())
        self.failure = self.launch["failure"]
        self.has_results = (folder / "results.jsonl").is_file()


def test_a_server_that_never_becomes_ready(plan: ServingPlan, facts: LaunchFacts, tmp_path: Path) -> None:
    hasty = faulty(plan, "never_ready")
    hasty = replace(hasty, server={**hasty.server, "ready": {**plan.server["ready"], "deadline_s": 3}})
    done = Launched(hasty, facts, tmp_path / "x", "bf16")
    assert done.failure["stage"] == "ready" and "not ready within 3 s" in done.failure["reason"]
    assert any("listening on" in line for line in done.failure["last_log_lines"])
    assert not done.has_results


def test_a_server_that_crashes_at_load(plan: ServingPlan, facts: LaunchFacts, tmp_path: Path) -> None:
    done = Launched(faulty(plan, "crash_at_load"), facts, tmp_path / "x", "bf16")
    assert (done.failure["stage"], done.outcome.status) == ("ready", "failed")
    assert "the server ended by itself: exit code 1" in done.failure["reason"]
    assert done.outcome.log_tail.splitlines() == done.failure["last_log_lines"]


def test_a_server_that_dies_under_load(plan: ServingPlan, facts: LaunchFacts, tmp_path: Path) -> None:
    done = Launched(faulty(plan, "die_after_tokens:4"), facts, tmp_path / "x", "w8a8_nd")
    assert done.failure["stage"] == "load" and "the server ended by itself" in done.failure["reason"]
    assert done.launch["verification"]["proved"] is True


def test_a_request_that_stalls(plan: ServingPlan, facts: LaunchFacts, tmp_path: Path) -> None:
    stalled = faulty(plan, "stall_request:2", prompts=2, output_tokens=2, request_timeout_s=3)
    done = Launched(stalled, facts, tmp_path / "x", "w8a8_nd")
    assert done.failure["stage"] == "load"
    assert "1 of 2 requests failed" in done.failure["reason"]
    assert "stalled: nothing came for 3 s" in done.failure["reason"]


def test_a_server_without_a_profile_endpoint(plan: ServingPlan, facts: LaunchFacts, tmp_path: Path) -> None:
    done = Launched(faulty(plan, "no_profile_endpoint"), facts, tmp_path / "x", "w8a8_nd", "profile")
    assert done.failure["stage"] == "profile"
    assert "/start_profile answered 404" in done.failure["reason"]


def test_a_port_that_is_taken(plan: ServingPlan, facts: LaunchFacts, tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        done = Launched(plan, facts, tmp_path / "x", "bf16", port=port)
    assert done.failure["stage"] == "start"
    assert f"port {port} is taken by" in done.failure["reason"] and str(os.getpid()) in done.failure["reason"]


def test_a_client_that_is_killed(plan: ServingPlan, facts: LaunchFacts, tmp_path: Path) -> None:
    ended = threading.Event()

    def kill_the_client() -> None:
        while not ended.wait(0.05):
            for pid, command in _all_marked().items():
                if "tilewatch.tasks.measure.serving.client" in command and "keeper" not in command:
                    os.kill(pid, signal.SIGKILL)
                    return

    killer = threading.Thread(target=kill_the_client)
    killer.start()
    try:
        done = Launched(faulty(plan, prompts=40), facts, tmp_path / "x", "w8a8_nd")
    finally:
        ended.set()
        killer.join()
    assert done.failure["stage"] == "load"
    assert done.failure["reason"].startswith("the client ended with killed by signal 9")


def _all_marked() -> dict[int, str]:
    """Clients of this process alone: the suite may run others beside it."""
    mine = {str(p) for p in _descendants(os.getpid())}
    return {pid: command for pid, command in processes_of("").items() if str(pid) in mine}


def _descendants(pid: int) -> list[int]:
    from tilewatch.tasks.measure.serving.keeper import descendants

    return descendants(pid)


def test_an_arm_that_is_not_proved_is_never_loaded(
    plan: ServingPlan, facts: LaunchFacts, tmp_path: Path
) -> None:
    forgotten = {**plan.arms["w8a8_nd"], "environment": {}}
    wrong = replace(plan, arms={**plan.arms, "w8a8_nd": forgotten})
    done = Launched(wrong, facts, tmp_path / "x", "w8a8_nd")
    assert done.failure["stage"] == "verify" and not done.has_results
    assert "weight format: FRACTAL_NZ, expected ND (server info)" in done.failure["reason"]
    assert "SGLANG_NPU_DISABLE_ACL_FORMAT_WEIGHT: (not set), expected 1" in done.failure["reason"]


def test_a_server_that_cannot_be_started(plan: ServingPlan, facts: LaunchFacts, tmp_path: Path) -> None:
    absent = replace(plan, server={**plan.server, "command": ["/no/such/server", "{port}"]})
    done = Launched(absent, facts, tmp_path / "x", "bf16")
    assert done.failure["stage"] == "start"
    assert done.failure["reason"] == "/no/such/server cannot be started: No such file or directory"


STUBBORN = "trap '' TERM; setsid sleep 600 & (sleep 601 &) ; exec sleep 602"


def _wait_for(mark: str, processes: int) -> None:
    """Wait until so many processes carry the mark, the keeper among them."""
    deadline = time.monotonic() + 30
    while len(marked(MARK, mark)) != processes or list(marked(MARK, mark).values()).count("sleep") < 3:
        assert time.monotonic() < deadline, marked(MARK, mark)
        time.sleep(0.02)


def test_what_a_server_spawned_is_ended_with_it_even_outside_its_process_group(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    logs = tmp_path / "out", tmp_path / "err"
    with kept(["bash", "-c", STUBBORN], dict(os.environ), mark, *logs, 0.2) as process:
        _wait_for(mark, processes=4)
    assert marked(MARK, mark) == {}
    assert [entry["name"] for entry in process.killed] == ["sleep"] * 3


def test_a_killed_keeper_leaves_nothing_either(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    logs = tmp_path / "out", tmp_path / "err"
    with kept(["bash", "-c", STUBBORN], dict(os.environ), mark, *logs, 0.2) as process:
        _wait_for(mark, processes=4)
        process.keeper.kill()
    assert marked(MARK, mark) == {}


PARENT = """
import os, sys, time
from pathlib import Path
from tilewatch.tasks.measure.serving.kept import kept
folder = Path(sys.argv[1])
with kept(["sleep", "600"], dict(os.environ), sys.argv[2], folder / "out", folder / "err", 5):
    print("kept", flush=True)
    time.sleep(600)
"""


def test_the_death_of_the_parent_ends_the_server(repository: Path, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), mark],
        stdout=subprocess.PIPE,
        cwd=repository,
        start_new_session=True,
    )
    assert parent.stdout is not None and parent.stdout.readline() == b"kept\n"
    assert marked(MARK, mark)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while marked(MARK, mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marked(MARK, mark) == {}


def test_a_command_that_is_no_program_is_refused(tmp_path: Path) -> None:
    logs = tmp_path / "out", tmp_path / "err"
    said = "/no/such cannot be started: No such file or directory"
    with pytest.raises(StartError, match=said), kept(["/no/such"], dict(os.environ), "m", *logs, 1.0):
        raise AssertionError("it was started")


def test_a_free_port_is_free() -> None:
    with socket.create_server((LOOPBACK, free_port())) as listener:
        assert listener.getsockname()[1] > 0
