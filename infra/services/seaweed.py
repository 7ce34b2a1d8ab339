"""The embedded object store: one SeaweedFS process per home, started and stopped for the user."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pydantic import SecretStr

from tilewatch.infra.errors import ServiceError
from tilewatch.infra.objects import multipart
from tilewatch.infra.objects.endpoint import PROBE_TIMEOUT_S, Endpoint
from tilewatch.infra.objects.failures import check_space
from tilewatch.infra.services import seaweed_process as process
from tilewatch.infra.services.ports import LOOPBACK
from tilewatch.infra.services.seaweed_files import StoreFiles
from tilewatch.infra.settings import Settings

START_TIMEOUT_S = 30.0
# It ends within 1.1 s unless it waits for a connection that was opened and never used (5 s) or, on a full
# disk, tries for ever to write its own log. Killing it loses nothing acknowledged: writes are synced.
STOP_TIMEOUT_S = 2.0
START_ATTEMPTS = 3
# An upload may be resumed the next morning; what is older was given up.
STALE_UPLOAD_AGE = timedelta(days=2)

_children: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class StoreStatus:
    """The embedded store as ``tilewatch status`` shows it."""

    running: bool
    kept: bool
    url: str
    pid: int
    data_folder: Path
    log: Path


def ensure_running(settings: Settings, *, keep: bool = True) -> Endpoint:
    """Start the embedded store unless it runs, and say where it is.

    ``keep`` makes it stay until ``stop``; otherwise its last user stops it (see ``infra.services.store``).
    Raises ServiceError or NoSpaceError.
    """
    files = files_of(settings)
    files.create_folders()
    with files.starting():
        return running(settings, files, keep=keep)


def stop(settings: Settings) -> bool:
    """Stop the embedded store, whoever uses it. False if it did not run."""
    files = files_of(settings)
    if not files.root.is_dir():
        return False
    with files.starting():
        return halt(files)


def status(settings: Settings) -> StoreStatus:
    """Whether the embedded store runs, and where."""
    files = files_of(settings)
    state = files.state()
    alive = files.alive()
    url = f"http://{LOOPBACK}:{state.ports['s3.port']}" if alive and state.ports else ""
    return StoreStatus(alive, alive and state.keep, url, state.pid if alive else 0, files.data, files.log)


def reader(settings: Settings) -> Endpoint:
    """The running store with the credentials that may only read: what a team is given."""
    files = files_of(settings)
    keys = files.credentials()
    return _endpoint(settings, files, keys.reader_access_key, keys.reader_secret_key)


def files_of(settings: Settings) -> StoreFiles:
    """The files of the store of this home."""
    return StoreFiles(settings.home / "store")


def running(settings: Settings, files: StoreFiles, *, keep: bool) -> Endpoint:
    """``ensure_running`` for a caller that holds the start lock."""
    keys = files.credentials()
    keep = keep or files.state().keep
    endpoint = _endpoint(settings, files, keys.access_key, keys.secret_key)
    if files.alive() and process.answers(endpoint, time.monotonic() + PROBE_TIMEOUT_S):
        files.update(keep=keep)
        process.sync_writes(files, endpoint.bucket)
        return endpoint
    halt(files, patience_s=1)
    check_space(endpoint)
    for _ in range(START_ATTEMPTS):
        child = process.launch(files, settings.s3_bucket, keep=keep)
        _children.append(child)
        endpoint = _endpoint(settings, files, keys.access_key, keys.secret_key)
        try:
            if process.answers(endpoint, time.monotonic() + START_TIMEOUT_S, child):
                process.sync_writes(files, endpoint.bucket)
                multipart.abort_stale(endpoint.client(), endpoint.bucket, STALE_UPLOAD_AGE)
                return endpoint
        except BaseException:
            halt(files)
            raise
        halt(files)
        files.update(ports={})
    reason = process.last_line(files.log)
    raise ServiceError(f"the embedded store does not start: {reason}", f"See {files.log}")


def halt(files: StoreFiles, patience_s: float = STOP_TIMEOUT_S) -> bool:
    """``stop`` for a caller that holds the start lock. What does not end within the patience is killed."""
    state = files.state()
    was_alive = files.alive()
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        if not files.alive():
            break
        pid = state.pid or files.holder()
        if not pid:
            raise ServiceError(f"an unknown process holds {files.data}", "Stop it, or use another home")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal_number)
        deadline = time.monotonic() + patience_s
        while files.alive() and time.monotonic() < deadline:
            time.sleep(0.02)
    for child in [c for c in _children if c.pid == state.pid]:
        child.wait()
        _children.remove(child)
    for port in state.ports.values():
        for leftover in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            leftover.unlink(missing_ok=True)
    files.update(pid=0, keep=False)
    return was_alive


def _endpoint(settings: Settings, files: StoreFiles, access_key: str, secret_key: SecretStr) -> Endpoint:
    port = files.state().ports.get("s3.port", 0)
    return Endpoint(
        url=f"http://{LOOPBACK}:{port}",
        bucket=settings.s3_bucket,
        access_key=SecretStr(access_key),
        secret_key=secret_key,
        data_folder=files.data,
    )
