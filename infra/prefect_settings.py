"""The Prefect settings that tilewatch needs, in one place.

Each was found necessary by test: the defaults lose concurrency slots when the server restarts, stall on
SQLite, send analytics, or leave dead flow runs in Running. ``apply`` must run before Prefect is first
imported.
"""

from __future__ import annotations

import os
from pathlib import Path

from tilewatch.infra.services.background import Background
from tilewatch.infra.services.prefect_login import CLIENT_AUTH, own_login
from tilewatch.infra.services.short_server import ShortServer

ALWAYS: dict[str, str] = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_SERVER_API_HOST": "127.0.0.1",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
}
"""Set unless the environment already says otherwise."""

ALONE: dict[str, str] = {"PREFECT_LOGGING_TO_API_ENABLED": "false", "PREFECT_UI_ENABLED": "0"}
"""Added where no server is configured: the flow runs on one that lives as long as the command."""

_short: ShortServer | None = None

COMMAND_LINE: dict[str, str] = {"PREFECT_LOGGING_LEVEL": "CRITICAL"}
"""Added at a prompt: a failure is told once, by us; Prefect would log it with a traceback first."""


def server(home: Path) -> Background:
    """The process of this home's own Prefect server, running or not."""
    return Background(home / "services", "prefect-server")


def own_api(home: Path) -> str | None:
    """Address of the API of this home's own server; None where it does not run."""
    found = server(home)
    return f"http://{ALWAYS['PREFECT_SERVER_API_HOST']}:{found.state().port}/api" if found.alive() else None


def apply(home: Path) -> None:
    """Prepare this process to run a flow from the command line; Prefect's database is ``home/prefect``.

    The flow runs on the server of PREFECT_API_URL, else on this home's own one, else on one that is begun
    here and ends with this process: call ``ready`` before the flow. The login of the latter two is put into
    the environment. Raises ServiceError where that of the home's own server cannot be read.
    """
    global _short
    for name, value in {**ALWAYS, **COMMAND_LINE}.items():
        os.environ.setdefault(name, value)
    folder = home / "prefect"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # Prefect creates one level only
    os.environ.setdefault("PREFECT_HOME", str(folder))
    own = own_api(home)
    if own and os.environ.get("PREFECT_API_URL", own) == own:
        os.environ |= {"PREFECT_API_URL": own, CLIENT_AUTH: own_login(home)}
    if "PREFECT_API_URL" not in os.environ:
        for name, value in ALONE.items():
            os.environ.setdefault(name, value)
        _short = ShortServer()
        os.environ |= {"PREFECT_API_URL": _short.api_url, CLIENT_AUTH: _short.login}


def ready() -> None:
    """Wait for the server that ``apply`` began, if it had to. Raises ServiceError where it does not start."""
    if _short is not None:
        _short.wait()
