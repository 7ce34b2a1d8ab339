"""A file is there whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewatch.tasks.files import write_whole


def test_a_writer_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "state.json"
    write_whole(target, "µ")
    assert target.read_bytes() == "µ".encode() and [p.name for p in tmp_path.iterdir()] == ["state.json"]

    def dies(*_: object) -> None:
        raise OSError("killed before the rename")

    monkeypatch.setattr(Path, "replace", dies)
    with pytest.raises(OSError, match="killed before the rename"):
        write_whole(target, b"new", durable=True)
    assert target.read_text(encoding="utf-8") == "µ"
    monkeypatch.undo()
    write_whole(target, b"new", durable=True)
    assert target.read_bytes() == b"new"


def test_a_secret_is_readable_by_its_user_alone_from_the_first_instant(tmp_path: Path) -> None:
    write_whole(tmp_path / "key", "secret", mode=0o600)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
