"""The files of one embedded store under ``<home>/store``: credentials, server configuration, state, locks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from tilewatch.infra.errors import NoSpaceError, ServiceError
from tilewatch.tasks.files import write_whole

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
LOG_LIMIT_BYTES = 8 * 2**20
# Every port is named, because the server derives the missing ones from fixed numbers, and then two
# servers collide: its administration part listens on 23646 even with its pages switched off.
PORT_FLAGS = tuple(
    f"{part}.port{suffix}"
    for part in ("s3", "master", "volume", "filer", "admin")
    for suffix in ("", ".grpc")
)


@dataclass(frozen=True)
class Credentials:
    """Keys made at first start: one identity that writes, one for teams that only reads."""

    access_key: str
    secret_key: SecretStr
    reader_access_key: str
    reader_secret_key: SecretStr


@dataclass
class State:
    """What is known of the server: its process, its ports by flag, and whether it outlives its users."""

    pid: int = 0
    ports: dict[str, int] = field(default_factory=dict)
    keep: bool = False
    fsync_buckets: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class StoreFiles:
    """Paths of one embedded store and the reading and writing of what is in them."""

    root: Path

    @property
    def data(self) -> Path:
        """Folder of the server's volumes and metadata."""
        return self.root / "data"

    @property
    def config(self) -> Path:
        """Folder of the server's configuration."""
        return self.root / "config"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.root / "weed.log"

    def create_folders(self) -> None:
        """Make the folders, for the user alone. Raises ServiceError or NoSpaceError."""
        with _writing(self.root):
            for folder in (self.root, self.data, self.config):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if self.log.exists() and self.log.stat().st_size > LOG_LIMIT_BYTES:
                self.log.replace(self.log.with_suffix(".log.old"))

    def credentials(self) -> Credentials:
        """The store's keys; made on first use."""
        path = self.root / "credentials.json"
        if not path.exists():
            names = ("access_key", "secret_key", "reader_access_key", "reader_secret_key")
            self._write(path, json.dumps({n: secrets.token_hex(20 if "secret" in n else 10) for n in names}))
        keys = json.loads(path.read_text())
        return Credentials(
            keys["access_key"],
            SecretStr(keys["secret_key"]),
            keys["reader_access_key"],
            SecretStr(keys["reader_secret_key"]),
        )

    def write_configuration(self, bucket: str) -> None:
        """Write what the server reads at start: identities, and keys that close its other doors."""
        keys = self.credentials()
        identities = [
            _identity(
                "tilewatch",
                keys.access_key,
                keys.secret_key,
                ["Admin", "Read", "Write", "List", "Tagging"],
            ),
            _identity(
                "reader",
                keys.reader_access_key,
                keys.reader_secret_key,
                [f"Read:{bucket}", f"List:{bucket}"],
            ),
        ]
        self._write(self.config / "s3.json", json.dumps({"identities": identities}))
        if not (self.config / "security.toml").exists():
            sections = ("jwt.signing", "jwt.signing.read", "jwt.filer_signing", "jwt.filer_signing.read")
            text = "".join(f'[{section}]\nkey = "{secrets.token_hex(32)}"\n' for section in sections)
            self._write(self.config / "security.toml", text)

    def state(self) -> State:
        """The state left by the last start; an empty one where there is none that can be read."""
        try:
            return State(**json.loads((self.root / "state.json").read_text()))
        except (OSError, ValueError, TypeError):
            return State()

    def write_state(self, state: State) -> None:
        """Replace the state at once."""
        self._write(self.root / "state.json", json.dumps(asdict(state)))

    def update(self, **changes: object) -> None:
        """Change some fields of the state."""
        self.write_state(replace(self.state(), **changes))  # type: ignore[arg-type]

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Alone in starting, stopping, joining and leaving the store; others wait."""
        descriptor = self.open_lock("start")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def open_lock(self, name: str) -> int:
        """Descriptor of a lock file: ``start``, ``users`` or ``data``."""
        with _writing(self.root):
            return os.open(self.root / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextlib.contextmanager
    def locked_data(self) -> Iterator[int]:
        """The lock on the data folder, for a server to inherit. Two servers on one folder corrupt it.

        Raises ServiceError if another process keeps it.
        """
        descriptor = self.open_lock("data")
        try:
            for pause_s in (*[0.02] * 50, None):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    # alive() holds it for an instant, so one refusal proves nothing.
                    if pause_s is None:
                        raise ServiceError(
                            f"another process holds {self.data}", "Stop it, or use another home"
                        ) from None
                    time.sleep(pause_s)
            yield descriptor
        finally:
            os.close(descriptor)

    def alive(self) -> bool:
        """Whether a server holds the data folder. The kernel frees this lock on any death of the server."""
        if not self.root.is_dir():
            return False
        descriptor = self.open_lock("data")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def holder(self) -> int:
        """Process that has the data lock open, 0 where none is found; for a start killed half way."""
        lock = (self.root / "data.lock").resolve()
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            with contextlib.suppress(OSError):
                if link.readlink() == lock:
                    return int(link.parts[2])
        return 0

    def _write(self, path: Path, text: str) -> None:
        """Whole or not at all, readable by the user alone from its first instant."""
        with _writing(self.root):
            write_whole(path, text, durable=True, mode=0o600)


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise NoSpaceError(
                f"the disk under {folder} is full", "Free space there, or set TILEWATCH_HOME elsewhere"
            ) from error
        raise ServiceError(
            f"cannot write {error.filename or folder}: {error.strerror}",
            "Set TILEWATCH_HOME to a folder you may write",
        ) from error


def _identity(name: str, access_key: str, secret_key: SecretStr, actions: list[str]) -> dict[str, Any]:
    pair = {"accessKey": access_key, "secretKey": secret_key.get_secret_value()}
    return {"name": name, "credentials": [pair], "actions": actions}
