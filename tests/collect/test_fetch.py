"""A stored capture comes back byte for byte, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tilewatch.infra.objects import ObjectStore
from tilewatch.tasks.collect import CaptureError, archive_capture, fetch_capture


def _files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_capture_comes_back_as_it_was(
    object_store: ObjectStore, new_capture: Callable[..., Path], tmp_path: Path
) -> None:
    folder = new_capture(large_bytes=40 * 2**20)
    ref = archive_capture(folder, object_store)
    fetch_capture(object_store, ref.prefix, tmp_path / "fetched")
    assert _files(tmp_path / "fetched") == _files(folder)
    assert fetch_capture(object_store, ref.prefix, tmp_path / "fetched").capture_id == ref.capture_id


def test_a_damaged_object_is_named_and_nothing_appears(
    object_store: ObjectStore, new_capture: Callable[..., Path], tmp_path: Path
) -> None:
    ref = archive_capture(new_capture(), object_store)
    object_store.replace(f"{ref.prefix}/samples.jsonl", b"damaged")
    with pytest.raises(CaptureError, match=r"samples\.jsonl"):
        fetch_capture(object_store, ref.prefix, tmp_path / "fetched")
    assert [path.name for path in tmp_path.iterdir()] == ["capture"]


def test_a_manifest_of_another_capture_is_refused(
    object_store: ObjectStore, new_capture: Callable[..., Path], tmp_path: Path
) -> None:
    ref = archive_capture(new_capture(), object_store)
    object_store.replace(f"{ref.prefix}/manifest.json", b'{"schema_version": 1, "files": []}')
    with pytest.raises(CaptureError, match="belongs to capture"):
        fetch_capture(object_store, ref.prefix, tmp_path / "fetched")


def test_a_folder_that_holds_something_else_is_left_alone(
    object_store: ObjectStore, new_capture: Callable[..., Path], tmp_path: Path
) -> None:
    ref = archive_capture(new_capture(), object_store)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_text("keep")
    with pytest.raises(CaptureError):
        fetch_capture(object_store, ref.prefix, tmp_path / "taken")
    assert _files(tmp_path / "taken") == {"mine": b"keep"}
