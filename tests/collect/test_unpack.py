"""Archives: good ones are unpacked byte for byte, dangerous ones are refused by name and leave nothing."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewatch.tasks.collect.unpack import ArchiveError, UnpackLimits, is_archive, unpack

Member = tuple[str, bytes]
CONTENT = {"plog/plog-5_20261129145533000.log": b"a\n" * 1000, "deep/er/x.csv": b"1,2\n", "empty": b""}


def tar(path: Path, members: list[Member], change: Callable[[tarfile.TarInfo], None] | None = None) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            if change:
                change(info)
            archive.addfile(info, io.BytesIO(content))
    return path


def packed_zip(path: Path, members: list[Member], mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return path


def everything(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz", "a.tar", "a.zip"])
def test_files_come_out_byte_for_byte(tmp_path: Path, name: str) -> None:
    make = packed_zip if name.endswith("zip") else tar
    archive = make(tmp_path / name, list(CONTENT.items()))
    assert is_archive(archive)
    target = tmp_path / "out"
    files = unpack(archive, target)
    assert {f.relative_to(target).as_posix(): f.read_bytes() for f in files} == CONTENT


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("../evil", "a path with '..'"),
        ("ok/../../evil", "a path with '..'"),
        ("/etc/evil", "an absolute path"),
        ("C:\\evil", "an absolute path"),
        ("..\\evil", "a path with '..'"),
        ("\\\\host\\share\\evil", "an absolute path"),
    ],
)
def test_a_path_out_of_the_target_is_refused_by_name(
    tmp_path: Path, name: str, entry: str, reason: str
) -> None:
    make = packed_zip if name.endswith("zip") else tar
    archive = make(tmp_path / name, [("good", b"x"), (entry, b"y")])
    before = everything(tmp_path)
    with pytest.raises(ArchiveError) as refused:
        unpack(archive, tmp_path / "out")
    assert repr(entry) in str(refused.value) and reason in str(refused.value)
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (tarfile.SYMTYPE, "a link"),
        (tarfile.LNKTYPE, "a link"),
        (tarfile.CHRTYPE, "a device or pipe"),
        (tarfile.BLKTYPE, "a device or pipe"),
        (tarfile.FIFOTYPE, "a device or pipe"),
    ],
)
def test_links_and_devices_of_a_tape_are_refused(tmp_path: Path, kind: bytes, reason: str) -> None:
    def change(info: tarfile.TarInfo) -> None:
        info.type, info.linkname, info.size = kind, "/etc/passwd", 0

    archive = tar(tmp_path / "a.tar.gz", [("evil", b"")], change)
    with pytest.raises(ArchiveError, match=f"a.tar.gz: entry 'evil' is {reason}"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    archive = packed_zip(tmp_path / "a.zip", [("evil", b"/etc/passwd")], mode=0o120777)
    with pytest.raises(ArchiveError, match="entry 'evil' is a link"):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize("name", ["bomb.tar.gz", "bomb.zip"])
def test_a_thousandfold_expansion_is_refused_before_it_is_written(tmp_path: Path, name: str) -> None:
    make = packed_zip if name.endswith("zip") else tar
    archive = make(tmp_path / name, [("zeros", bytes(4 << 20))])
    assert archive.stat().st_size * 500 < 4 << 20
    with pytest.raises(ArchiveError, match="would become more than 200 times as many"):
        unpack(archive, tmp_path / "out", UnpackLimits(ratio_from_bytes=1 << 20))
    assert everything(tmp_path) == {name}


def test_too_many_entries_and_too_many_bytes_are_refused(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar", [(f"f{i}", b"xy") for i in range(20)])
    with pytest.raises(ArchiveError, match="more than 19 entries"):
        unpack(archive, tmp_path / "out", UnpackLimits(entries=19))
    with pytest.raises(ArchiveError, match="more than 39 bytes"):
        unpack(archive, tmp_path / "out", UnpackLimits(size_bytes=39))


def test_a_name_twice_or_below_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="'a' occurs twice"):
        unpack(tar(tmp_path / "a.tar", [("a", b"1"), ("a", b"2")]), tmp_path / "out")
    with pytest.raises(ArchiveError, match="'a/b' lies below the file a"):
        unpack(tar(tmp_path / "b.tar", [("a", b"1"), ("a/b", b"2")]), tmp_path / "out")


def test_a_size_in_the_listing_that_lies_is_refused(tmp_path: Path) -> None:
    archive = packed_zip(tmp_path / "a.zip", [("a", b"0123456789")])
    data = bytearray(archive.read_bytes())
    listed = data.index(b"PK\x01\x02") + 24  # uncompressed size in the central directory
    data[listed : listed + 4] = (4).to_bytes(4, "little")
    archive.write_bytes(data)
    with pytest.raises(ArchiveError, match="a.zip"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["a.tar.gz", "a.tar", "a.zip"]),
    at=st.integers(min_value=0),
    damage=st.binary(min_size=0, max_size=40),
    cut=st.booleans(),
)
def test_damaged_archives_raise_nothing_else_and_write_nowhere_else(
    tmp_path_factory: pytest.TempPathFactory, kind: str, at: int, damage: bytes, cut: bool
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    make = packed_zip if kind.endswith("zip") else tar
    archive = make(folder / kind, list(CONTENT.items()))
    data = archive.read_bytes()
    place = at % len(data)
    archive.write_bytes(data[:place] + damage + (b"" if cut else data[place + len(damage) :]))
    try:
        unpack(archive, folder / "out")
    except ArchiveError:
        assert not (folder / "out").exists()
    assert {path.name for path in folder.iterdir()} <= {kind, "out"}
