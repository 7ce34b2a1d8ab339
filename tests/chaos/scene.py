"""What chaos is made with: a site to hurt, a wire to its store that can be bent, the table of the outcome."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.flows.conftest import Home
from tests.operate.team import Login
from tilewatch.flows.agents.device_agent import agent
from tilewatch.infra.archive import Archive, open_archive
from tilewatch.infra.objects import Endpoint
from tilewatch.infra.prefect_settings import own_api, server
from tilewatch.infra.raw_zone import claims
from tilewatch.infra.services import seaweed
from tilewatch.infra.services.prefect_login import own_login
from tilewatch.infra.settings import Settings

FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class Site:
    """One machine after `tilewatch up`: server, store and the agent of its CPU, each to be killed."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.queue = f"{os.uname().nodename}-0"
        self.settings = Settings(home=home.path, lock_folder=home.path / "locks")

    def api(self, method: str, path: str, **body: Any) -> Any:
        # A server that was just killed answers again in some seconds; SQLite may say 503 meanwhile.
        for attempt in itertools.count():
            try:
                url = str(own_api(self.home.path))
                login = Login(url, own_login(self.home.path))
                answer = httpx.request(method, f"{url}{path}", json=body or None, timeout=30, auth=login)
                answer.raise_for_status()
                return answer.json() if answer.content else None
            except (httpx.TransportError, httpx.HTTPStatusError):
                if attempt > 60:
                    raise
                time.sleep(0.5)

    def queue_run(self, deployment: str, **request: Any) -> str:
        """Queue a flow run; returns its id."""
        found = self.api("GET", f"/deployments/name/{deployment}")
        path = f"/deployments/{found['id']}/create_flow_run"
        return str(self.api("POST", path, parameters={"request": request}, state={"type": "SCHEDULED"})["id"])

    def state(self, run: str) -> str:
        return str(self.api("GET", f"/flow_runs/{run}")["state_type"])

    def lift_limits(self) -> None:
        """Let Prefect start as many runs at once as there are workers: what keeps them apart is the lock."""
        pools = self.api("POST", "/work_pools/filter", limit=50)
        for pool in pools:
            self.api("PATCH", f"/work_pools/{pool['name']}", concurrency_limit=20)
        for queue in self.api("POST", "/work_queues/filter", limit=50):
            self.api("PATCH", f"/work_queues/{queue['id']}", concurrency_limit=20)

    def hasten(self, automation: str, within_s: float) -> None:
        """Let a proactive automation wait for so long only."""
        (found,) = [a for a in self.api("POST", "/automations/filter", limit=50) if a["name"] == automation]
        found["trigger"]["within"] = within_s
        names = ("name", "description", "enabled", "tags", "trigger", "actions")
        self.api("PUT", f"/automations/{found['id']}", **{name: found[name] for name in names})

    def endpoint(self) -> Endpoint:
        """The running store."""
        return seaweed.ensure_running(self.settings)

    def archive(self) -> contextlib.AbstractContextManager[Archive]:
        """The archive of the site."""
        return open_archive(self.settings)

    def claimed(self, run_id: str) -> dict[tuple[str, int], tuple[str, ...]]:
        with self.archive() as archive:
            return claims(archive, run_id)

    def guest(self, path: Path, endpoint_url: str | None = None) -> Home:
        """Another home on this host with the same server, store and locks; the store by another address."""
        endpoint = self.endpoint()
        return Home(
            path,
            {
                "PREFECT_API_URL": str(own_api(self.home.path)),
                "PREFECT_API_AUTH_STRING": own_login(self.home.path),
                "TILEWATCH_LOCK_FOLDER": str(self.settings.lock_folder),
                "TILEWATCH_S3_ENDPOINT": endpoint_url or endpoint.url,
                "TILEWATCH_S3_ACCESS_KEY": endpoint.access_key.get_secret_value(),
                "TILEWATCH_S3_SECRET_KEY": endpoint.secret_key.get_secret_value(),
            },
        )

    def kill_agent(self) -> None:
        os.kill(agent(self.home.path, 0).state().pid, signal.SIGKILL)

    def kill_server(self) -> None:
        os.killpg(server(self.home.path).state().pid, signal.SIGKILL)

    def kill_store(self) -> None:
        os.killpg(seaweed.status(self.settings).pid, signal.SIGKILL)


class Wire:
    """A loopback address before the store: lets everything pass, slowly, or refuses."""

    def __init__(self, target_url: str) -> None:
        host, _, port = target_url.removeprefix("http://").partition(":")
        self._target = host, int(port)
        self.delay_s = 0.0
        self.refuses = False
        self.refused = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        try:
            if self.refuses:
                raise ConnectionRefusedError
            far = socket.create_connection(self._target)
        except OSError:
            self.refused += 1
            near.close()
            return
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self.refuses:
                    self.refused += 1
                    break
                time.sleep(self.delay_s)
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


@contextlib.contextmanager
def working(home: Home, device: int) -> Iterator[subprocess.Popen[str]]:
    """An agent of ``home``, stopped afterwards."""
    with (home.path.parent / f"{home.path.name}-{device}-agent.log").open("w") as log:
        process = home.start("agent", "start", "--device", str(device), "--drain-s", "1", stdout=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=90)


def wait_for(condition: Callable[[], bool], seconds: float = 240) -> float:
    """Seconds that it took."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < seconds, "waited in vain"
        time.sleep(0.2)
    return time.monotonic() - begun


def overlaps(homes: list[Home]) -> tuple[int, int]:
    """How many captures of these homes there are, and how many began before the one before had ended."""
    held = []
    for home in homes:
        for path in (home.path / "spool").rglob("capture.json"):
            capture = json.loads(path.read_text())
            held.append((capture["started_ns"], capture["ended_ns"]))
    held.sort()
    return len(held), sum(after[0] < before[1] for before, after in itertools.pairwise(held))


def lost_and_doubled(home: Home, build: str) -> tuple[int, int, int]:
    """Processes that the runs of ``build`` planned, how many left no capture, and how many left two."""
    of_runs = (
        "SELECT r.planned_processes AS planned, count(*) AS captures, "
        "count(DISTINCT (c.arm, c.role, c.kind, c.process_index)) AS processes "
        "FROM runs r JOIN captures c ON r.run_id = c.run_id AND r.experiment = c.experiment "
        f"WHERE r.build = '{build}' GROUP BY r.run_id, r.experiment, r.planned_processes"
    )
    (found,) = home.rows(
        "SELECT sum(planned) AS planned, sum(planned - processes) AS lost, "
        f"sum(captures - processes) AS doubled FROM ({of_runs})"
    )
    return int(found["planned"]), int(found["lost"]), int(found["doubled"])


def show(rows: list[tuple[object, ...]]) -> None:
    """Print the table of what happened."""
    print("\nwhat happened, runs or captures, lost, doubled, recovered after s")
    for row in rows:
        print(*(f"{value:.1f}" if isinstance(value, float) else value for value in row), sep=", ")
