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
from tilewatch.infra.services.ports import LOOPBACK, free_ports

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 5.0


class ShortServer:
    """The server of this process, begun at once and awaited when it is needed."""

    def __init__(self) -> None:
        """Begin it on a free loopback port. Raises ServiceError where there is none."""
        (port,) = free_ports(1)
        self.api_url = f"http://{LOOPBACK}:{port}/api"
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(port)],
            env={**os.environ, "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"},
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


def serve(port: int) -> None:
    """Serve until told to end or left alone."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import uvicorn

    app = "prefect.server.api.server:create_app"
    uvicorn.run(app, factory=True, host=LOOPBACK, port=port, log_level="error", lifespan="on")


if __name__ == "__main__":
    serve(int(sys.argv[1]))
