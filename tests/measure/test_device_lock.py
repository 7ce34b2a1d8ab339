"""One process a device: waiting says for whom, death frees the lock, and the queue is fair."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tilewatch.tasks.measure.program import locks
from tilewatch.tasks.measure.run import Progress, measure_process

Make = Callable[..., dict[str, Any]]

HOLDER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from tilewatch.tasks.measure.program import locks
    for turn in range(int(sys.argv[3])):
        with locks.held(Path(sys.argv[1]), sys.argv[2], lambda owner: print("waiting", flush=True)):
            print("held", flush=True)
            sys.stdin.readline()
""")


@contextmanager
def holder(lock: Path, name: str, turns: int = 1) -> Iterator[subprocess.Popen[str]]:
    """Another process that takes the lock, and gives it back for a line on its stdin."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock), name, str(turns)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def release(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def test_a_second_process_waits_says_for_whom_and_starts_when_the_first_dies(
    plan: Make, point: Make, tmp_path: Path
) -> None:
    made = plan([point(1)])
    waited: list[Progress] = []
    with holder(Path(made["lock_path"]), "another sweep") as other:
        assert said(other) == "held"

        def on_progress(progress: Progress) -> None:
            if progress.waiting_for is not None:
                waited.append(progress)
                other.kill()

        outcome = measure_process(
            made, tmp_path / "c", python=sys.executable, timeout_s=60, on_progress=on_progress
        )
    assert outcome.status == "complete"
    (progress,) = waited
    assert progress.waiting_for is not None
    assert (progress.waiting_for["plan"], progress.waiting_for["pid"]) == ("another sweep", other.pid)
    assert f"waiting for the device: pid {other.pid} measures another sweep" in outcome.log_tail


def test_who_waits_comes_before_an_owner_who_returns(tmp_path: Path) -> None:
    lock = tmp_path / "device.lock"
    with holder(lock, "first", turns=2) as first:
        assert said(first) == "held"
        with holder(lock, "second") as second:
            assert said(second) == "waiting"
            _until_it_queues(lock)
            release(first)
            assert said(second) == "held"
            assert said(first) == "waiting"
            release(second)
            assert said(first) == "held"


def _until_it_queues(lock: Path) -> None:
    """The waiter has the place in the queue once that lock is refused."""
    descriptor = os.open(lock.with_name(lock.name + ".next"), os.O_RDWR)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def test_a_process_measures_under_the_lock_that_its_sweep_holds(
    plan: Make, point: Make, tmp_path: Path
) -> None:
    made = plan([point(1)])
    with locks.held(Path(made["lock_path"]), "the sweep", lambda owner: None) as descriptor:
        outcome = measure_process(
            made, tmp_path / "c", python=sys.executable, timeout_s=60, lock_fd=descriptor
        )
        owner = locks.owner_of(Path(made["lock_path"]))
    assert outcome.status == "complete"
    assert owner is not None and owner["plan"] == "the sweep" and owner["pid"] == os.getpid()


def test_a_descriptor_that_does_not_hold_the_lock_is_refused(plan: Make, point: Make, tmp_path: Path) -> None:
    made = plan([point(1)])
    other = os.open(tmp_path / "other.lock", os.O_RDWR | os.O_CREAT)
    with locks.held(Path(made["lock_path"]), "the sweep", lambda owner: None):
        outcome = measure_process(made, tmp_path / "c", python=sys.executable, timeout_s=60, lock_fd=other)
    os.close(other)
    assert outcome.status == "failed"
    assert outcome.reason is not None and f"--lock-fd {other} does not hold" in outcome.reason


def test_the_owner_is_forgotten_with_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "device.lock"
    with locks.held(lock, "a sweep", lambda owner: None):
        assert locks.owner_of(lock) is not None
    assert locks.owner_of(lock) is None


def test_the_lock_files_are_for_every_user_of_the_host(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with locks.held(tmp_path / "device.lock", "a sweep", lambda owner: None):
            pass
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "device.lock": 0o666,
        "device.lock.next": 0o666,
        "device.lock.owner": 0o666,
    }
