"""What an agent has running, on disk, so that its successor can clean up after a sudden death."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewatch.infra.errors import ServiceError
from tilewatch.infra.services.background import born
from tilewatch.tasks.files import write_whole
from tilewatch.tasks.measure.program import locks

KILL_AFTER_S = 10.0
ASKED = (0, 0)
"""In place of pid and start time: the server was asked for the run, and has not answered."""
TAKEN = (0, 1)
"""In place of pid and start time: the server gave the run, and its process has not been started."""


@dataclass(frozen=True)
class Journal:
    """The files of the agent of one queue under ``folder``."""

    folder: Path
    queue: str

    @property
    def temporary(self) -> Path:
        """Folder for temporary files of this agent alone, so that a successor can remove them."""
        return self.folder / f"{self.queue}.tmp"

    @property
    def ready(self) -> Path:
        """A file that is there while the agent takes work."""
        return self.folder / f"{self.queue}.ready"

    def held(self) -> bool:
        """Whether every agent of this home is told to begin nothing: its environment is about to change."""
        return hold_file(self.folder).exists()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Be the only agent of this queue in this home. Raises ServiceError if another one runs."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ServiceError(f"an agent for {self.queue} runs already in this home") from None
            self.ready.unlink(missing_ok=True)
            yield
            self.ready.unlink(missing_ok=True)
        finally:
            os.close(lock)

    def lives(self) -> bool:
        """Whether an agent of this queue runs in this home."""
        return bool(locks.is_held(self._lock))

    def claim(self, run_id: str, how: tuple[int, int]) -> None:
        """Note that flow run ``run_id`` is ASKED for or TAKEN: who dies now leaves it in Pending for ever."""
        self._write({**self.runs(), run_id: how})

    def begin(self, run_id: str, pid: int) -> None:
        """Note that flow run ``run_id`` runs as process ``pid``."""
        self._write({**self.runs(), run_id: (pid, born(pid) or 0)})

    def end(self, run_id: str) -> None:
        """Note that the flow run is over."""
        self._write({run: process for run, process in self.runs().items() if run != run_id})

    def runs(self) -> dict[str, tuple[int, int]]:
        """Flow runs noted, with pid and start time of their process, or ASKED or TAKEN."""
        try:
            found = json.loads(self._path.read_text())
            return {str(run): (int(pid), int(start)) for run, (pid, start) in found.items()}
        except (OSError, ValueError, TypeError):
            return {}

    def clean(self) -> dict[str, tuple[int, int]]:
        """End what a dead predecessor left running and remove its temporary files; returns what it noted."""
        left = self.runs()
        for pid, start in left.values():
            if pid:
                end_process(pid, start)
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir(parents=True, exist_ok=True, mode=0o700)
        return left

    def clear(self) -> None:
        """Forget every run."""
        self._write({})

    def known_build(self) -> dict[str, str]:
        """The build that this agent saw last; empty before the first look."""
        try:
            return dict(json.loads((self.folder / f"{self.queue}.build.json").read_text()))
        except (OSError, ValueError):
            return {}

    def note_build(self, build: dict[str, str]) -> None:
        """Remember the build."""
        write_whole(self.folder / f"{self.queue}.build.json", json.dumps(build))

    @property
    def _lock(self) -> Path:
        return self.folder / f"{self.queue}.lock"

    @property
    def _path(self) -> Path:
        return self.folder / f"{self.queue}.runs.json"

    def _write(self, runs: dict[str, tuple[int, int]]) -> None:
        write_whole(self._path, json.dumps(runs))


def hold_file(folder: Path) -> Path:
    """The file whose presence keeps the agents of ``folder`` from beginning anything."""
    return folder / "hold"


def hold(folder: Path, patience_s: float) -> bool:
    """Let the agents of ``folder`` begin nothing; True when nothing of theirs runs, False if not in time."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    hold_file(folder).touch()
    deadline = time.monotonic() + patience_s
    while busy := _running(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return not busy


def release(folder: Path) -> bool:
    """Let the agents go on; each looks at its build first. False if they were not held."""
    held = hold_file(folder).exists()
    hold_file(folder).unlink(missing_ok=True)
    return held


def _running(folder: Path) -> bool:
    """Whether a flow run of an agent of ``folder`` has a living process, or is about to get one."""
    journals = [Journal(folder, path.name.removesuffix(".runs.json")) for path in folder.glob("*.runs.json")]
    return any(
        born(pid) == start if pid else journal.lives()
        for journal in journals
        for pid, start in journal.runs().values()
    )


def end_process(pid: int, start: int, patience_s: float = KILL_AFTER_S) -> None:
    """Ask a process to end and kill it after ``patience_s``; another process of that pid is left alone."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + patience_s
        with contextlib.suppress(ProcessLookupError):
            if born(pid) == start:
                os.kill(pid, number)
        while born(pid) == start and time.monotonic() < deadline:
            time.sleep(0.05)
