"""What a running store shows to others: loopback only, no secret, no other door, no stray identity."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from tilewatch.infra.errors import CredentialsError
from tilewatch.infra.objects import Endpoint, ObjectStore
from tilewatch.infra.services import ports, store
from tilewatch.infra.services import seaweed as server
from tilewatch.infra.services import seaweed_process as process
from tilewatch.infra.services.seaweed_files import StoreFiles
from tilewatch.infra.settings import Settings


@dataclass
class Running:
    settings: Settings
    endpoint: Endpoint
    objects: ObjectStore

    @property
    def files(self) -> StoreFiles:
        return server.files_of(self.settings)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A store of its own with one object, started in an environment full of other people's credentials."""
    settings = Settings(home=tmp_path_factory.mktemp("exposed"))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "stray")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "stray-secret")
        environment.setenv("S3_BUCKET", "stray-bucket")
        with store(settings) as endpoint:
            objects = ObjectStore(endpoint)
            objects.put_new("a", b"1")
            yield Running(settings, endpoint, objects)


def _listening_addresses(pid: int) -> set[str]:
    """Local addresses, in hex, on which a process listens, from the kernel's own table."""
    inodes = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    tables = [Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}


def test_the_server_listens_on_loopback_only(running: Running) -> None:
    assert _listening_addresses(server.status(running.settings).pid) == {"0100007F"}


@pytest.mark.parametrize("part", ["filer.port", "volume.port", "master.port"])
def test_the_inner_parts_answer_no_http_without_a_key(running: Running, part: str) -> None:
    with socket.create_connection((ports.LOOPBACK, running.files.state().ports[part])) as connection:
        connection.sendall(b"GET /buckets/tilewatch/a HTTP/1.0\r\n\r\n")
        assert connection.recv(15).split()[1] in (b"401", b"404")


def test_every_file_of_the_store_is_for_its_user_alone(running: Running) -> None:
    root = running.files.root
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    names = ("credentials.json", "config/s3.json", "config/security.toml", "state.json")
    assert {stat.S_IMODE((root / name).stat().st_mode) for name in names} == {0o600}


def test_no_secret_is_written_to_the_log_or_shown_on_the_command_line(running: Running) -> None:
    status, keys = server.status(running.settings), running.files.credentials()
    shown = status.log.read_text() + Path(f"/proc/{status.pid}/cmdline").read_text()
    shown += f"{running} {keys}"
    secrets = [keys.secret_key.get_secret_value(), keys.reader_secret_key.get_secret_value()]
    assert [secret for secret in secrets if secret in shown] == []


def test_teams_can_read_and_not_write(running: Running) -> None:
    reader = ObjectStore(server.reader(running.settings))
    reader.check()
    assert reader.get("a") == b"1"
    assert [info.key for info in reader.list("a")] == ["a"]
    with pytest.raises(CredentialsError):
        reader.put_new("b", b"2")
    with pytest.raises(CredentialsError):
        reader.delete_prefix("a")
    assert running.objects.get("a") == b"1"


def test_writes_are_synced_to_disk(running: Running) -> None:
    configured = process.shell(running.files, "fs.configure")
    assert f'"locationPrefix":  "/buckets/{running.endpoint.bucket}/"' in configured
    assert '"fsync":  true' in configured


def test_the_environment_adds_neither_identities_nor_buckets(running: Running) -> None:
    buckets = [bucket["Name"] for bucket in running.endpoint.client().list_buckets()["Buckets"]]
    assert buckets == [running.endpoint.bucket]
    stray = replace(running.endpoint, access_key=SecretStr("stray"), secret_key=SecretStr("stray-secret"))
    with pytest.raises(CredentialsError):
        ObjectStore(stray).check()
