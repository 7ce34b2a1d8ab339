"""The login of this home's own Prefect server: made at its first start, in a file for the user alone."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from tilewatch.infra.errors import ServiceError

USER = "tilewatch"
SERVER_AUTH, CLIENT_AUTH = "PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING"
"""Variables by which the server, and whoever talks to it, are given the login: never on a command line."""


def new_login() -> str:
    """A login as Prefect writes it, ``user:password``."""
    return f"{USER}:{secrets.token_urlsafe(24)}"


def login_file(home: Path) -> Path:
    """Where the login of the home's own server is kept."""
    return home / "prefect" / "login"


def ensure_login(home: Path) -> str:
    """The login of the home's own server, made where there is none yet. Raises as ``own_login``."""
    path = login_file(home)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.suppress(FileExistsError):
        # Exclusive, so that of two first starts one decides; a name of its own until it is complete.
        part = path.with_name(f".login.{os.getpid()}.part")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(new_login() + "\n")
        try:
            path.hardlink_to(part)
        finally:
            part.unlink()
    return own_login(home)


def own_login(home: Path) -> str:
    """The login of the home's own server.

    Raises ServiceError where it cannot be read, is empty, or could have been read by other users.
    """
    path = login_file(home)
    remedy = f"Remove {path}, then `tilewatch down` and `tilewatch up` make a new one"
    try:
        with path.open() as file:
            mode = os.fstat(file.fileno()).st_mode
            login = file.read().strip()
    except OSError as error:
        raise ServiceError(f"the login in {path} cannot be read: {error.strerror}", remedy) from error
    if mode & 0o077:
        raise ServiceError(f"{path} can be read by other users: its login is not a secret any more", remedy)
    if not login:
        raise ServiceError(f"{path} is empty", remedy)
    return login
