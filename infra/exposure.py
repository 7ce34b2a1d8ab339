"""What strangers could reach on this host: the server's API, its database, the folders that are shared."""

from __future__ import annotations

import os
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewatch.infra.prefect_settings import own_api
from tilewatch.infra.settings import Settings

FOREIGN = "http://tilewatch-doctor.invalid"
TIMEOUT_S = 5.0
DATABASE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"


@dataclass(frozen=True)
class Look:
    """One thing that was looked at; ``fix`` is empty where strangers cannot reach it."""

    name: str
    what: str
    fix: str = ""


def looks(settings: Settings) -> Iterator[Look]:
    """Everything that this host opens to others. A server that does not answer is not looked at."""
    if api_url := os.environ.get("PREFECT_API_URL") or own_api(settings.home):
        yield from _server(api_url)
    yield _database(settings)
    yield _folder("lock folder", settings.lock_folder, common=True)
    yield _folder("spool", settings.spool_folder, common=False)


def _server(api_url: str) -> Iterator[Look]:
    status, _ = _answer(f"{api_url}/version", {})
    if status is None:
        return
    if status == 401:
        yield Look("login", f"{api_url} answers nobody without login")
    else:
        fix = (
            "Set PREFECT_SERVER_API_AUTH_STRING for the server, PREFECT_API_AUTH_STRING for agents and users"
        )
        yield Look("login", f"{api_url} answers without login: whoever reaches it runs flows here", fix)
    _, allowed = _answer(f"{api_url}/health", {"Origin": FOREIGN})
    if allowed in ("*", FOREIGN):
        fix = "Start it as tilewatch-server.service does, or set PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS"
        yield Look("origins", f"{api_url} answers pages of every origin", fix)
    else:
        yield Look("origins", f"{api_url} answers no foreign page")


def _answer(address: str, headers: dict[str, str]) -> tuple[int | None, str | None]:
    """Status and allowed origin of an answer; None and None where there is none."""
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return int(answer.status), answer.headers.get("Access-Control-Allow-Origin")
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("Access-Control-Allow-Origin")
    except (OSError, ValueError):
        return None, None


def _database(settings: Settings) -> Look:
    """The database of this home's own server, or the SQLite file that the environment names."""
    address = os.environ.get(DATABASE, "")
    named = address.partition(":///")[2] if address.startswith("sqlite") else ""
    path = Path(named) if named else settings.home / "prefect" / "prefect.db"
    files = [path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm"))]
    if found := [file for file in files if file.exists() and _open_to_others(file, stat.S_IROTH)]:
        what = f"{found[0]} can be read by every user: parameters, logs and states of all runs"
        return Look("database", what, f"chmod o= {found[0]}")
    return Look("database", f"{path} is not readable by other users")


def _open_to_others(path: Path, bit: int) -> bool:
    """Whether users who are neither owner nor of the group have the right, on a way that they may walk."""
    on_the_way = all(folder.stat().st_mode & stat.S_IXOTH for folder in path.resolve().parents)
    return bool(on_the_way and path.stat().st_mode & bit)


def _folder(name: str, folder: Path, *, common: bool) -> Look:
    """Whether strangers could replace or plant files; a common folder is open to all and sticky."""
    if not folder.exists():
        return Look(name, f"{folder} is not there yet")
    mode = folder.stat().st_mode
    own = (0, os.geteuid())
    if folder.is_symlink() and folder.lstat().st_uid not in own:
        return Look(
            name, f"{folder} is a link that another user made", f"Remove it, and set {name} elsewhere"
        )
    if mode & stat.S_IWOTH and not (common and mode & stat.S_ISVTX):
        fix = f"chmod {'+t' if common else 'go-w'} {folder}"
        return Look(name, f"every user may replace what is in {folder}", fix)
    if planted := [path for path in _entries(folder) if path.is_symlink() and path.lstat().st_uid not in own]:
        return Look(name, f"{planted[0]} is a link that another user planted", f"Remove {planted[0]}")
    return Look(name, f"what is in {folder} is safe from other users")


def _entries(folder: Path) -> Iterator[Path]:
    """What lies in the folder and in its folders; what cannot be listed is left out."""
    try:
        for path in sorted(folder.iterdir()):
            yield path
            if path.is_dir() and not path.is_symlink():
                yield from sorted(path.iterdir())
    except OSError:
        return
