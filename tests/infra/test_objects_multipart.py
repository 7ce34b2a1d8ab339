"""Large files arrive in parts, survive the death of the server and are never half visible."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tilewatch.infra.errors import ObjectExistsError, StoreUnreachableError
from tilewatch.infra.objects import ObjectStore, multipart
from tilewatch.infra.services import seaweed as server
from tilewatch.infra.settings import Settings

SIZE_BYTES = 3 * multipart.PART_BYTES + 12_345


def _large_file(path: Path, seed: int = 1) -> Path:
    path.write_bytes(random.Random(seed).randbytes(SIZE_BYTES))
    return path


class _CutOff(Exception):
    pass


class _Wire:
    """The real client, which notes the parts that were sent and lets something happen before one of them."""

    def __init__(self, store: ObjectStore, before: dict[int, Callable[[], None]]) -> None:
        self._client = store.endpoint.client()
        self._before = before
        self.sent: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def upload_part(self, **request: Any) -> Any:
        number = request["PartNumber"]
        self._before.get(number, lambda: None)()
        answer = self._client.upload_part(**request)
        self.sent.append(number)
        return answer


def _wire(store: ObjectStore, before: dict[int, Callable[[], None]] | None = None) -> _Wire:
    wire = _Wire(store, before or {})
    store.__dict__["_client"] = wire
    return wire


def _cut() -> None:
    raise _CutOff


def test_a_large_file_is_cut_into_parts_and_read_back(object_store: ObjectStore, tmp_path: Path) -> None:
    path = _large_file(tmp_path / "large")
    assert object_store.put_new("large", path) is True
    assert object_store.get("large") == path.read_bytes()
    assert (object_store.head("large").checksum or "").endswith("-4")


def test_a_large_file_is_sent_once_and_never_replaced(object_store: ObjectStore, tmp_path: Path) -> None:
    object_store.put_new("large", _large_file(tmp_path / "large"))
    assert object_store.put_new("large", tmp_path / "large") is False
    with pytest.raises(ObjectExistsError):
        object_store.put_new("large", _large_file(tmp_path / "other", seed=2))


def test_an_interrupted_upload_is_invisible_and_goes_on_where_it_stopped(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    path = _large_file(tmp_path / "large")

    _wire(object_store, {3: _cut})
    with pytest.raises(_CutOff):
        object_store.put_new("large", path)
    assert object_store.exists("large") is False

    wire = _wire(object_store)
    assert object_store.put_new("large", path) is True
    assert wire.sent == [3, 4]
    assert object_store.get("large") == path.read_bytes()


def test_parts_of_another_content_are_not_taken_over(object_store: ObjectStore, tmp_path: Path) -> None:
    _wire(object_store, {3: _cut})
    with pytest.raises(_CutOff):
        object_store.put_new("large", _large_file(tmp_path / "other", seed=2))
    wire = _wire(object_store)
    path = _large_file(tmp_path / "large")
    object_store.put_new("large", path)
    assert wire.sent == [1, 2, 3, 4]
    assert object_store.get("large") == path.read_bytes()


def test_only_stale_uploads_are_aborted(object_store: ObjectStore) -> None:
    client = object_store.endpoint.client()
    client.create_multipart_upload(Bucket=object_store.bucket, Key="begun")
    assert multipart.abort_stale(client, object_store.bucket, timedelta(days=2)) == 0
    assert multipart.abort_stale(client, object_store.bucket, timedelta(seconds=-60)) == 1
    assert list(multipart.unfinished(client, object_store.bucket, "")) == []


def test_an_upload_goes_on_after_the_server_was_killed_in_the_middle(
    tmp_path: Path,
) -> None:
    settings = Settings(home=tmp_path / "home")
    path = _large_file(tmp_path / "large")
    try:
        store = ObjectStore(server.ensure_running(settings))
        store.put_new("before", b"acknowledged")
        pid = server.status(settings).pid
        wire = _wire(store, {3: lambda: os.kill(pid, signal.SIGKILL)})
        with pytest.raises(StoreUnreachableError):
            store.put_new("large", path)
        assert wire.sent == [1, 2]

        store = ObjectStore(server.ensure_running(settings))
        assert store.get("before") == b"acknowledged"
        assert store.exists("large") is False
        wire = _wire(store)
        store.put_new("large", path)
        assert wire.sent == [3, 4]
        assert store.get("large") == path.read_bytes()
    finally:
        server.stop(settings)
