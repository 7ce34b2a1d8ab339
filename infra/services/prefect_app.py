"""Prefect's server as tilewatch starts it everywhere: with login, CSRF protection and a front door.

Run as a program it serves in the foreground on PREFECT_SERVER_API_HOST and PREFECT_SERVER_API_PORT. Its page
is at the origin of PREFECT_UI_API_URL where that is set (behind a proxy), and at the loopback address.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from urllib.parse import urlsplit

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.infra.errors import SettingsError
from tilewatch.infra.placeholders import refuse_placeholders
from tilewatch.infra.services.ports import LOOPBACK
from tilewatch.infra.services.prefect_login import SERVER_AUTH

HOST, PORT, PAGE_API = "PREFECT_SERVER_API_HOST", "PREFECT_SERVER_API_PORT", "PREFECT_UI_API_URL"
DEFAULT_PORT = "4200"
_PORTS_LEFT_OUT = {"http": 80, "https": 443}


def doors(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings that close the server of ``environment``: allowed origins and CSRF protection.

    Raises SettingsError where it has no login, or one that was left as shipped.
    """
    refuse_placeholders(environment)
    user, _, password = environment.get(SERVER_AUTH, "").partition(":")
    if not (user and password):
        raise SettingsError(
            f"{SERVER_AUTH} must hold user:password: without it whoever reaches the server runs any command "
            "on every agent",
            "Set it in the server's environment file, and as PREFECT_API_AUTH_STRING in those of the agents",
        )
    return {
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": ",".join(_origins(environment)),
        "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "true",
    }


def _origins(environment: Mapping[str, str]) -> list[str]:
    """Where the page of this server may come from."""
    port = environment.get(PORT, DEFAULT_PORT)
    found = [origin_of(f"http://{name}:{port}") for name in (LOOPBACK, "localhost")]
    if page := environment.get(PAGE_API):
        found.append(origin_of(page))
    return found


def origin_of(address: str) -> str:
    """Origin of an http address as a browser sends it: small letters, without the scheme's default port."""
    parts = urlsplit(address)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    shown = "" if parts.port in (None, _PORTS_LEFT_OUT.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{host}{shown}"


def serve(log_level: str = "warning") -> None:
    """Serve until told to end. Raises SettingsError as ``doors``."""
    os.environ |= doors(os.environ)
    os.environ["PREFECT__SERVER_FINAL"] = "1"
    # What this process writes, the database first, is for its user alone.
    os.umask(0o077)
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    from tilewatch.infra.services.front_door import behind_front_door

    api = get_current_settings().server.api
    app = behind_front_door(create_app(), _origins(os.environ))
    uvicorn.run(
        app,
        host=api.host,
        port=api.port,
        log_level=log_level,
        lifespan="on",
        timeout_keep_alive=api.keepalive_timeout,
    )


def main() -> int:
    """Serve; ends with one sentence and the error's exit code where the settings do not allow it."""
    try:
        serve()
    except TilewatchError as error:
        sys.stderr.write(f"{error}\n{error.hint}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
