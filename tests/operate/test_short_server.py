"""Without a configured server a command brings its own, which never outlives it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.flows.conftest import Home
from tilewatch.infra.services.short_server import healthy


def servers_of(home: Path) -> dict[int, str]:
    """Pid and API address of every short-lived server that was started for this home."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode().split("\0")
            if (
                "tilewatch.infra.services.short_server" in words
                and str(home).encode() in (process / "environ").read_bytes()
            ):
                found[int(process.name)] = f"http://127.0.0.1:{words[-2]}/api"
        except OSError:
            continue
    return found


def wait_until(condition: Callable[[], object], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


@pytest.mark.timeout(600)
def test_the_server_of_a_command_that_is_killed_ends_with_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    for answers in (False, True):
        run = home.start("run", "A", "--preset", "smoke", "--agent", "simulated")
        wait_until(lambda: servers_of(home.path))
        (url,) = servers_of(home.path).values()
        wait_until(lambda url=url, answers=answers: not answers or healthy(url))  # type: ignore[misc]
        os.kill(run.pid, signal.SIGKILL)
        run.communicate()
        wait_until(lambda: not servers_of(home.path), seconds=15)
