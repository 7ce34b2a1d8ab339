"""A capture reaches the raw zone whole, once, and shows itself only with its manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewatch.infra.objects import ObjectStore
from tilewatch.tasks.collect import CaptureError, archive_capture, list_captures, read_manifest
from tilewatch.tasks.collect.archive import key_part


class _Dying:
    """A store whose process dies before its n-th write."""

    def __init__(self, store: ObjectStore, writes: int) -> None:
        self._store = store
        self._writes = writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_new(self, key: str, body: bytes | Path) -> bool:
        if self._writes == 0:
            raise KeyboardInterrupt
        self._writes -= 1
        return self._store.put_new(key, body)


def test_a_capture_is_named_by_its_manifest_and_stored_by_experiment_and_build(
    object_store: ObjectStore, new_capture: Callable[..., Path]
) -> None:
    folder = new_capture()
    ref = archive_capture(folder, object_store)
    digest = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    assert ref.capture_id == digest[:32]
    assert ref.prefix == f"raw/B/cpu-torch2.13.0/{ref.capture_id}"
    assert {info.key.removeprefix(ref.prefix + "/") for info in object_store.list("")} == {
        "capture.json",
        "manifest.json",
        "profiler/deep/trace ü.bin",
        "samples.jsonl",
        "stdout.log",
    }


def test_archiving_twice_does_nothing(object_store: ObjectStore, new_capture: Callable[..., Path]) -> None:
    folder = new_capture()
    first, second = archive_capture(folder, object_store), archive_capture(folder, object_store)
    assert (first.created, second.created) == (True, False)
    assert first.prefix == second.prefix
    assert list(list_captures(object_store)) == [first.prefix]


@pytest.mark.parametrize("writes", [0, 2, 4])
def test_a_capture_cut_off_at_any_write_is_invisible_and_completed_by_the_next_call(
    object_store: ObjectStore, new_capture: Callable[..., Path], writes: int
) -> None:
    folder = new_capture()
    with pytest.raises(KeyboardInterrupt):
        archive_capture(folder, _Dying(object_store, writes))
    assert list(list_captures(object_store)) == []
    ref = archive_capture(folder, object_store)
    assert ref.created is True
    assert list(list_captures(object_store)) == [ref.prefix]


def test_a_file_that_changed_after_its_manifest_is_named(
    object_store: ObjectStore, new_capture: Callable[..., Path]
) -> None:
    folder = new_capture()
    (folder / "samples.jsonl").write_text("changed")
    with pytest.raises(CaptureError, match=r"samples\.jsonl"):
        archive_capture(folder, object_store)
    assert list(object_store.list("")) == []


def test_a_file_that_is_not_in_the_manifest_would_be_lost_and_is_named(
    object_store: ObjectStore, new_capture: Callable[..., Path]
) -> None:
    folder = new_capture()
    (folder / "log").mkdir()
    (folder / "log" / "late.log").write_text("late")
    with pytest.raises(CaptureError, match=r"late\.log"):
        archive_capture(folder, object_store)


def test_a_link_is_not_followed_out_of_the_capture(
    object_store: ObjectStore, new_capture: Callable[..., Path]
) -> None:
    folder = new_capture()
    (folder / "stdout.log").unlink()
    (folder / "stdout.log").symlink_to("/etc/hostname")
    with pytest.raises(CaptureError, match=r"stdout\.log"):
        archive_capture(folder, object_store)


def test_a_folder_without_a_manifest_is_incomplete(
    object_store: ObjectStore, new_capture: Callable[..., Path]
) -> None:
    folder = new_capture()
    (folder / "manifest.json").unlink()
    with pytest.raises(CaptureError, match="incomplete"):
        archive_capture(folder, object_store)


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a//b", "manifest.json", "."])
def test_a_manifest_cannot_name_a_file_outside_its_folder(tmp_path: Path, path: str) -> None:
    text = f'{{"schema_version": 1, "files": [{{"path": "{path}", "size_bytes": 0, "sha256": ""}}]}}'
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CaptureError, match="not allowed"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"schema_version": 1}', '{"schema_version": 2, "files": []}'])
def test_a_malformed_manifest_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(CaptureError, match=r"manifest\.json"):
        read_manifest(tmp_path)


def test_a_capture_that_does_not_say_what_it_is_goes_to_ingested(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "found.csv").write_text("a\n")
    from tilewatch.tasks.collect import write_manifest

    write_manifest(tmp_path)
    assert archive_capture(tmp_path, object_store).prefix.startswith("raw/ingested/unknown/")


@pytest.mark.parametrize(
    ("label", "part"),
    [
        ("8.5.0-inner_1+a", "8.5.0-inner_1+a"),
        ("a/b", "a%2Fb"),
        ("..", "%2E%2E"),
        ("CANN 8.2 β", "CANN%208.2%20%CE%B2"),
    ],
)
def test_a_label_is_always_one_part_of_the_key(label: str, part: str) -> None:
    assert key_part(label) == part


def test_captures_of_an_odd_label_are_listed(
    object_store: ObjectStore, new_capture: Callable[..., Path]
) -> None:
    ref = archive_capture(new_capture(label="../8.2 β"), object_store)
    assert list(list_captures(object_store, "raw/B")) == [ref.prefix]
