"""The Prefect server of this host: started on a free loopback port, and where it is reached."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tilewatch.infra.errors import ServiceError
from tilewatch.infra.prefect_settings import ALWAYS, own_api, server
from tilewatch.infra.services import prefect_app
from tilewatch.infra.services.background import Background
from tilewatch.infra.services.ports import LOOPBACK, free_ports
from tilewatch.infra.services.prefect_login import SERVER_AUTH, ensure_login
from tilewatch.infra.services.short_server import healthy
from tilewatch.infra.settings import Settings

# The first start migrates the database: 19 s measured on two idle cores, over 120 s on busy ones.
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 15.0


def ensure_running(settings: Settings) -> str:
    """Start the server unless it runs; returns the address of its API.

    Raises ServiceError where it does not become healthy.
    """
    service = server(settings.home)
    if service.alive():
        return _when_healthy(settings.home, service)
    last = service.state().port
    (port,) = free_ports(1, [last] if last else ())
    folder = settings.home / "prefect"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    environment = {
        **os.environ,
        **ALWAYS,
        "PREFECT_HOME": str(folder),
        prefect_app.HOST: LOOPBACK,
        prefect_app.PORT: str(port),
        SERVER_AUTH: ensure_login(settings.home),
    }
    for name in ("PREFECT_API_URL", prefect_app.PAGE_API, "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    service.start([sys.executable, "-m", prefect_app.__name__], environment, port)
    return _when_healthy(settings.home, service)


def require(settings: Settings) -> str:
    """Address of the API to work with: PREFECT_API_URL, else this home's own server.

    Raises ServiceError where there is neither, or where it does not answer.
    """
    if found := os.environ.get("PREFECT_API_URL") or own_api(settings.home):
        if healthy(found):
            return found
        raise ServiceError(
            f"the Prefect server at {found} does not answer", "Start it, or correct PREFECT_API_URL"
        )
    raise ServiceError(
        "no Prefect server is configured", "Start one here with `tilewatch up`, or set PREFECT_API_URL"
    )


def _when_healthy(home: Path, service: Background) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        api_url = own_api(home)
        if api_url is None:
            break
        if healthy(api_url):
            return api_url
        time.sleep(0.2)
    reason = service.last_line()
    service.stop(STOP_TIMEOUT_S)
    raise ServiceError(f"the Prefect server does not start: {reason}", f"See {service.log}")
