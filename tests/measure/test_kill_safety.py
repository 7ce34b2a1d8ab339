"""A measuring process can be killed at any instant, and nothing survives or pretends to be data."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.measure.run import PROGRAM, Outcome, Progress, measure_process

Plan = dict[str, Any]
Make = Callable[..., Plan]
PATIENCE_S = 30.0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def start(plan: Plan, folder: Path) -> subprocess.Popen[str]:
    plan_file = folder.with_name("plan.json")
    plan_file.write_text(json.dumps(plan))
    command = [sys.executable, str(PROGRAM), str(plan_file), str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def events(child: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert child.stdout is not None
    for line in child.stdout:
        yield json.loads(line)


def await_event(child: subprocess.Popen[str], name: str) -> None:
    assert any(event["event"] == name for event in events(child)), f"no {name}"


@pytest.mark.parametrize("event", ["started", "point"])
def test_a_killed_process_leaves_no_manifest_and_is_measured_again(
    endless: Plan, plan: Make, point: Make, tmp_path: Path, event: str
) -> None:
    child = start(endless, tmp_path / "c")
    await_event(child, event)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert (tmp_path / "c" / "plan.json").is_file() and not (tmp_path / "c" / "manifest.json").exists()
    outcome = measure_process(plan([point(1)]), tmp_path / "c", python=sys.executable, timeout_s=60)
    assert outcome.status == "complete"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_at_a_sample_boundary_without_a_manifest(
    endless: Plan, tmp_path: Path, number: signal.Signals
) -> None:
    child = start(endless, tmp_path / "c")
    await_event(child, "point")
    child.send_signal(number)
    last = list(events(child))[-1]
    assert (child.wait(), last["status"], last["reason"]) == (3, "stopped", number.name)
    assert not (tmp_path / "c" / "manifest.json").exists()


def test_a_process_that_takes_too_long_is_ended(endless: Plan, tmp_path: Path) -> None:
    outcome = measure_process(endless, tmp_path / "c", python=sys.executable, timeout_s=0.5)
    assert (outcome.status, outcome.has_manifest) == ("timed_out", False)
    assert outcome.reason == "took longer than 0.5 s"


def test_an_exception_in_the_parent_ends_the_process(endless: Plan, tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_process(endless, tmp_path / "c", python=sys.executable, timeout_s=60, on_progress=interrupt)
    assert _processes_that_name(tmp_path) == []


def _processes_that_name(folder: Path) -> list[str]:
    """Command lines of running processes that mention ``folder``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().decode(errors="replace").replace("\0", " "))
    return [line for line in found if str(folder) in line]


def test_the_death_of_the_parent_kills_the_process(endless: Plan, tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, json.dumps(endless), str(tmp_path / "c")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert parent.stdout is not None and parent.stdout.readline() == "started\n"
    pid = int(json.loads((tmp_path / "device.lock.owner").read_text())["pid"])
    assert alive(pid)
    parent.kill()
    parent.wait()
    wait_until(lambda: not alive(pid))
    assert not (tmp_path / "c" / "manifest.json").exists()


PARENT = textwrap.dedent("""
    import json, sys
    from pathlib import Path
    from tilewatch.tasks.measure.run import measure_process
    measure_process(json.loads(sys.argv[1]), Path(sys.argv[2]), python=sys.executable, timeout_s=600,
                    on_progress=lambda progress: print("started", flush=True))
""")


def test_a_capture_is_never_measured_by_a_process_whose_parent_is_gone(endless: Plan, tmp_path: Path) -> None:
    plan_file = tmp_path / "plan.json"
    plan_file.write_text(json.dumps(endless))
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    command = [sys.executable, str(PROGRAM), str(plan_file), str(tmp_path / "c"), "--parent", str(gone.pid)]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 3 and "parent is gone" in answer.stdout
    assert not (tmp_path / "c").exists()


@pytest.mark.soak
def test_twenty_kills_at_random_moments_leave_no_manifest(plan: Make, point: Make, tmp_path: Path) -> None:
    points = [point(number) for number in range(1, 30)]
    for attempt in range(20):
        child = start(plan(points), tmp_path / "c")
        time.sleep(0.1 * attempt)
        finished = child.poll()
        child.kill()
        child.wait()
        complete = (tmp_path / "c" / "manifest.json").is_file()
        assert not complete or finished == 0 or b"complete" in (tmp_path / "c" / "capture.json").read_bytes()
        outcome: Outcome = measure_process(plan(points), tmp_path / "c", python=sys.executable, timeout_s=60)
        assert outcome.status == "complete"
        (tmp_path / "c").rename(tmp_path / f"done-{attempt}")
