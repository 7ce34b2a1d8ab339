"""The parent's side of a kept process: start it under the keeper, watch it, end it with all it spawned."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.tasks.measure.serving.processes import marked

KEEPER = Path(__file__).with_name("keeper.py")
MARK = "TILEWATCH_LAUNCH"
"""Variable that every process of a launch inherits, so that none of them is overlooked."""
STOP_MARGIN_S = 15.0


class StartError(TilewatchError):
    """A command that could not be started; the message says why."""


@dataclass
class Kept:
    """A kept process. ``pid`` is that of the command itself; ``code`` its exit code, None while it runs."""

    keeper: subprocess.Popen[bytes]
    mark: str
    pid: int = 0
    code: int | None = None
    killed: list[dict[str, Any]] = field(default_factory=list)
    """What the end of the command left behind and had to be killed."""
    _rest: bytes = b""

    def poll(self) -> int | None:
        """Exit code of the command; None while it runs."""
        self._hear(0.0)
        if self.code is None and self.keeper.poll() is not None:
            self.code = -int(signal.SIGKILL)
        return self.code

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the command to end by itself; None where it did not within ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while self.poll() is None and (left := deadline - time.monotonic()) > 0:
            self._hear(min(left, 0.1))
        return self.code

    def stop(self, grace_s: float) -> None:
        """End the command and everything that it spawned; returns when nothing of it is left."""
        if self.keeper.poll() is None:
            with contextlib.suppress(BrokenPipeError):
                assert self.keeper.stdin is not None
                self.keeper.stdin.write(b"stop\n")
                self.keeper.stdin.flush()
            deadline = time.monotonic() + grace_s + STOP_MARGIN_S
            while self.keeper.poll() is None and time.monotonic() < deadline:
                self._hear(0.1)
        self._hear(0.0)
        self._kill_the_rest()

    def _kill_the_rest(self) -> None:
        """Where the keeper itself was killed, its orphans still carry the mark."""
        if self.keeper.poll() is None:
            self.keeper.kill()
        self.keeper.wait()
        deadline = time.monotonic() + STOP_MARGIN_S
        while (left := marked(MARK, self.mark)) and time.monotonic() < deadline:
            known = {entry["pid"] for entry in self.killed}
            self.killed += [{"pid": pid, "name": name} for pid, name in left.items() if pid not in known]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def _hear(self, timeout_s: float) -> None:
        assert self.keeper.stdout is not None
        descriptor = self.keeper.stdout.fileno()
        while select.select([descriptor], [], [], timeout_s)[0]:
            piece = os.read(descriptor, 1 << 16)
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
            if not piece:
                time.sleep(min(timeout_s, 0.05))
                return
            timeout_s = 0.0

    def _take(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "started":
            self.pid = event["pid"]
        elif event["event"] == "ended":
            self.code = event["code"]
        elif event["event"] == "stopped":
            self.killed += event["killed"]
            self.code = event["code"]
        elif event["event"] == "refused":
            raise StartError(event["reason"])


@contextlib.contextmanager
def kept(
    command: list[str],
    environment: Mapping[str, str],
    mark: str,
    stdout: Path,
    stderr: Path,
    grace_s: float,
    inherited: tuple[int, ...] = (),
) -> Iterator[Kept]:
    """Run ``command``; on leaving, however that happens, nothing of it is left.

    ``mark`` names the launch. The keeper holds the ``inherited`` descriptors until it ends: a lock that they
    stand for is not free while anything of the command lives. Raises StartError where the command cannot be
    started.
    """
    keeper = subprocess.Popen(
        [sys.executable, str(KEEPER), str(stdout), str(stderr), str(grace_s), "--", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**environment, MARK: mark},
        start_new_session=True,
        pass_fds=inherited,
    )
    process = Kept(keeper, mark)
    try:
        deadline = time.monotonic() + STOP_MARGIN_S
        while not process.pid and keeper.poll() is None and time.monotonic() < deadline:
            process._hear(0.1)
        process._hear(0.0)
        if not process.pid:
            raise StartError(f"{command[0]} was not started: its keeper ended with {keeper.poll()}")
        yield process
    finally:
        process.stop(grace_s)
        for stream in (keeper.stdin, keeper.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
