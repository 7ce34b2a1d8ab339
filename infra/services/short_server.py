"""A Prefect server for one command: it ends with the process that started it, however that ends.

Prefect's own ephemeral server outlives a killed parent, 230 MB each. This one reads a pipe whose other end
only the parent holds, and leaves when the kernel closes it. Run as a program with the port as its argument.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time
import urllib.request

from tilewatch.infra.errors import ServiceError
from tilewatch.infra.services import prefect_app
from tilewatch.infra.services.ports import LOOPBACK, free_ports
from tilewatch.infra.services.prefect_login import SERVER_AUTH, new_login

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 5.0


class ShortServer:
    """The server of this process, begun at once and awaited when it is needed."""

    def __init__(self) -> None:
        """Begin it on a free loopback port. Raises ServiceError where there is none."""
        (port,) = free_ports(1)
        self.api_url = f"http://{LOOPBACK}:{port}/api"
        self.login = new_login()
        own = {
            "PREFECT__SERVER_EPHEMERAL": "1",
            prefect_app.HOST: LOOPBACK,
            prefect_app.PORT: str(port),
            SERVER_AUTH: self.login,
        }
        self._process = subprocess.Popen(
            # The port is for whoever looks for the process: what counts stands in its environment.
            [sys.executable, "-m", __name__, str(port)],
            env={**{n: v for n, v in os.environ.items() if n != prefect_app.PAGE_API}, **own},
            stdin=subprocess.PIPE,
            # ctrl-C at the prompt is for the command, which still talks to the server while it stops.
            start_new_session=True,
        )
        atexit.register(self.end)

    def wait(self) -> None:
        """Return when it answers. Raises ServiceError where it ends instead or takes too long."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not healthy(self.api_url):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServiceError(
                    "the Prefect server of this command does not start",
                    "Its reason stands above; or: tilewatch up",
                )
            time.sleep(0.1)

    def end(self) -> None:
        """Ask it to end, kill it where it does not."""
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def healthy(api_url: str, timeout_s: float = 2.0) -> bool:
    """Whether the server says that it is well."""
    try:
        with urllib.request.urlopen(f"{api_url}/health", timeout=timeout_s) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    prefect_app.serve(log_level="error")
