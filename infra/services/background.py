"""A service of this host in the background: in a session of its own, found again by its state file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tilewatch.infra.errors import ServiceError
from tilewatch.tasks.files import write_whole

LOG_LIMIT_BYTES = 20 << 20
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class State:
    """A started process. ``born`` is its start time in clock ticks: a pid alone may be another process."""

    pid: int = 0
    born: int = 0
    port: int = 0


@dataclass(frozen=True)
class Background:
    """One named service with its state and log under ``folder``."""

    folder: Path
    name: str

    @property
    def log(self) -> Path:
        """What the service wrote to stdout and stderr."""
        return self.folder / f"{self.name}.log"

    def state(self) -> State:
        """The state left by the last start; an empty one where there is none that can be read."""
        try:
            return State(**json.loads((self.folder / f"{self.name}.json").read_text()))
        except (OSError, ValueError, TypeError):
            return State()

    def alive(self) -> bool:
        """Whether the process of the last start still runs."""
        state = self.state()
        if child := _children.get(state.pid):
            child.poll()
        return state.pid != 0 and born(state.pid) == state.born

    def start(self, command: Sequence[str], environment: Mapping[str, str], port: int = 0) -> None:
        """Start the service detached and note it. Raises ServiceError if it cannot be started."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self.log.exists() and self.log.stat().st_size > LOG_LIMIT_BYTES:
                self.log.replace(self.log.with_suffix(".log.old"))
            with self.log.open("ab") as log:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=dict(environment),
                    start_new_session=True,
                    cwd=self.folder,
                )
            _children[child.pid] = child
            state = State(child.pid, born(child.pid) or 0, port)
            write_whole(self.folder / f"{self.name}.json", json.dumps(asdict(state)))
        except OSError as error:
            raise ServiceError(f"{self.name} cannot be started: {error.strerror}") from error

    def stop(self, patience_s: float) -> bool:
        """Ask the service to end, kill it after ``patience_s``. False if it did not run."""
        if not self.alive():
            return False
        pid = self.state().pid
        # Its own process first: a worker decides itself what becomes of the runs in its session.
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + patience_s
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        if child := _children.pop(pid, None):
            child.wait()
        return True

    def last_line(self) -> str:
        """The end of the log, for a message."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return lines[-1][:200] if lines else "it wrote no log"


def born(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None for one that is gone or only not waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
