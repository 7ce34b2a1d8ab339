"""A team's set-up on one machine: what `infra/systemd/` says, with PostgreSQL and an external S3 endpoint."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.conftest import REPOSITORY
from tilewatch.infra.objects import Endpoint
from tilewatch.infra.services.ports import free_ports
from tilewatch.infra.services.short_server import healthy

UNITS = REPOSITORY / "infra" / "systemd"
INSTALLED, HERE = "/srv/tilewatch/.venv/bin", str(Path(sys.executable).parent)
"""Where the units look for the programs, and where this interpreter has them."""
POSTGRESQL = shutil.which("initdb") or next(
    (str(p) for p in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), None
)


@dataclass(frozen=True)
class Team:
    """A running server; ``environment`` is that of its agents and users, ``secrets`` must appear nowhere.

    ``chat`` is what the team's chat was sent.
    """

    api_url: str
    environment: dict[str, str]
    secrets: tuple[str, ...]
    database: str
    chat: list[dict[str, str]]

    @property
    def auth(self) -> Login:
        """What a client of the API has."""
        return Login(self.api_url, self.environment["PREFECT_API_AUTH_STRING"])


class Login(httpx.Auth):
    """Login and CSRF token of a client, as Prefect's own clients send them."""

    requires_response_body = True

    def __init__(self, api_url: str, login: str) -> None:
        self._api_url, self._client = api_url, secrets.token_hex(8)
        self._basic = f"Basic {base64.b64encode(login.encode()).decode()}"
        self._token = ""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = self._basic
        if request.method in ("POST", "PUT", "PATCH", "DELETE"):
            if not self._token:
                asked = httpx.Request(
                    "GET",
                    f"{self._api_url}/csrf-token",
                    params={"client": self._client},
                    headers={"Authorization": self._basic},
                )
                answer = yield asked
                self._token = answer.json()["token"] if answer.is_success else ""
            request.headers["Prefect-Csrf-Client"] = self._client
            request.headers["Prefect-Csrf-Token"] = self._token
        yield request


def settings_of(path: Path) -> dict[str, str]:
    """An environment file of systemd."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def command_of(unit: str) -> list[str]:
    """What the unit starts, with this interpreter's programs."""
    found = re.search(r"^ExecStart=(.+)$", (UNITS / unit).read_text(), re.MULTILINE)
    assert found
    return found[1].replace(INSTALLED, HERE).split()


@contextlib.contextmanager
def postgresql(password: str) -> Iterator[str]:
    """Address of an empty database on a free port; PostgreSQL refuses root, so another user runs it."""
    assert POSTGRESQL
    binaries = Path(POSTGRESQL).parent
    as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="tilewatch-postgresql-") as folder:
        secret, data = Path(folder, "password"), Path(folder, "data")
        secret.write_text(password)
        if as_user:
            for path in (Path(folder), secret):
                shutil.chown(path, "postgres")
        made = ["-U", "tilewatch", "--auth=scram-sha-256", f"--pwfile={secret}", "-D", str(data), "--no-sync"]
        subprocess.run([*as_user, POSTGRESQL, *made], check=True, capture_output=True, cwd="/")
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        control = [*as_user, str(binaries / "pg_ctl"), "-D", str(data), "-w"]
        log = str(Path(folder, "log"))
        subprocess.run(
            [*control, "-l", log, "-o", options, "start"], check=True, stdout=subprocess.DEVNULL, cwd="/"
        )
        try:
            yield f"postgresql+asyncpg://tilewatch:{password}@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True, cwd="/")


def wait_until_healthy(api_url: str, server: subprocess.Popen[bytes], seconds: float = 400) -> None:
    """Wait for the server's first start, which makes its database: 20 s on idle cores, more on busy ones."""
    deadline = time.monotonic() + seconds
    while not healthy(api_url):
        assert server.poll() is None, "the Prefect server ended"
        assert time.monotonic() < deadline, f"no Prefect server at {api_url}"
        time.sleep(0.3)


@contextlib.contextmanager
def chat_service(token: str, received: list[dict[str, str]]) -> Iterator[str]:
    """Address of a chat's incoming webhook; without the token in its path nothing is received."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            known = self.path == f"/{token}" and self.headers["Content-Type"] == "application/json"
            if known:
                received.append(json.loads(body))
            self.send_response(200 if known else 403)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing on stderr."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{service.server_port}/{token}"
        service.shutdown()


@contextlib.contextmanager
def team(folder: Path, store: Endpoint) -> Iterator[Team]:
    """The server of `tilewatch-server.service` with `server.env`; SQLite where there is no PostgreSQL."""
    login, password, token = f"team:{secrets.token_hex(8)}", secrets.token_hex(8), secrets.token_hex(8)
    chat: list[dict[str, str]] = []
    (port,) = free_ports(1)
    with contextlib.ExitStack() as stack:
        database = (
            stack.enter_context(postgresql(password))
            if POSTGRESQL
            else f"sqlite+aiosqlite:///{folder / 'prefect.db'}"
        )
        own = {
            **settings_of(UNITS / "server.env"),
            "PREFECT_HOME": str(folder),
            "PREFECT_SERVER_API_PORT": str(port),
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": database,
            "PREFECT_SERVER_API_AUTH_STRING": login,
            "PREFECT_UI_API_URL": "https://tilewatch.example/api",
        }
        webhook = stack.enter_context(chat_service(token, chat))
        log = stack.enter_context((folder / "server.log").open("wb"))
        server = subprocess.Popen(
            command_of("tilewatch-server.service"), env={**os.environ, **own}, stdout=log, stderr=log
        )
        url = f"http://127.0.0.1:{port}/api"
        try:
            wait_until_healthy(url, server)
            yield Team(
                url,
                {
                    "PREFECT_API_URL": url,
                    "PREFECT_API_AUTH_STRING": login,
                    "TILEWATCH_ALERT_WEBHOOK": webhook,
                    "TILEWATCH_S3_ENDPOINT": store.url,
                    "TILEWATCH_S3_BUCKET": store.bucket,
                    "TILEWATCH_S3_ACCESS_KEY": store.access_key.get_secret_value(),
                    "TILEWATCH_S3_SECRET_KEY": store.secret_key.get_secret_value(),
                },
                (login.partition(":")[2], password, token, store.secret_key.get_secret_value()),
                database,
                chat,
            )
        finally:
            server.terminate()
            server.wait(30)
