"""Archives opened safely: nothing is written outside the target, and nothing grows without bound.

The whole listing of an archive is judged before the first byte is written; sizes are counted again while
unpacking, because a listing can lie.
"""

from __future__ import annotations

import lzma
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from tilewatch.data_contracts.errors import TilewatchError

SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")
_COPY_BYTES = 1 << 20
_BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError,
    RuntimeError, ValueError,
)  # fmt: skip


class ArchiveError(TilewatchError):
    """An archive that is refused; the message names archive, entry and reason."""


@dataclass(frozen=True)
class UnpackLimits:
    """What an archive may hold. ``ratio`` is unpacked over packed size of the whole archive."""

    entries: int = 100_000
    size_bytes: int = 64 << 30
    ratio: int = 200
    # Small archives of zeros or logs pack far better than 1:200 and do no harm.
    ratio_from_bytes: int = 64 << 20


@dataclass(frozen=True)
class _Entry:
    name: str
    size_bytes: int
    is_folder: bool
    member: tarfile.TarInfo | zipfile.ZipInfo


def is_archive(path: Path) -> bool:
    """True for the names of archives that ``unpack`` opens."""
    return path.name.lower().endswith(SUFFIXES)


def unpack(archive: Path, target: Path, limits: UnpackLimits | None = None) -> list[Path]:
    """Unpack ``archive`` into the new folder ``target`` and return its files, sorted.

    Raises ArchiveError for ``..`` and absolute paths, links, devices, names that occur twice or hide one
    another, too many entries, too much data, and for archives that cannot be read. ``target`` is then removed
    or left incomplete below itself only.
    """
    limits = limits or UnpackLimits()
    target.mkdir(parents=True)
    try:
        with _opened(archive) as opened:
            entries = _judged(archive, _entries(opened), limits)
            written = [_write(archive, opened, entry, target) for entry in entries if not entry.is_folder]
    except ArchiveError:
        shutil.rmtree(target)
        raise
    except _BROKEN as error:
        shutil.rmtree(target)
        raise ArchiveError(f"{archive.name}: cannot be unpacked: {type(error).__name__}: {error}") from error
    return sorted(written)


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile | zipfile.ZipFile]:
    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as packed:
            yield packed
    else:
        with tarfile.open(archive, "r:*") as tape:
            yield tape


def _entries(opened: tarfile.TarFile | zipfile.ZipFile) -> Iterator[tuple[_Entry, str | None]]:
    """Entries with the reason why their kind is refused."""
    if isinstance(opened, zipfile.ZipFile):
        for info in opened.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            reason = "a link" if kind == stat.S_IFLNK else None
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                reason = "a device or pipe"
            if info.flag_bits & 1:
                reason = "encrypted"
            yield _Entry(info.filename, info.file_size, info.is_dir(), info), reason
        return
    for member in opened:
        reason = "a link" if member.issym() or member.islnk() else None
        if not (member.isfile() or member.isdir() or reason):
            reason = "a device or pipe"
        yield _Entry(member.name, member.size, member.isdir(), member), reason


def _judged(
    archive: Path, entries: Iterator[tuple[_Entry, str | None]], limits: UnpackLimits
) -> list[_Entry]:
    kept: list[_Entry] = []
    total, packed_bytes = 0, archive.stat().st_size
    files: set[PurePosixPath] = set()
    for entry, reason in entries:
        reason = reason or _path_fault(entry.name)
        if reason is not None:
            raise ArchiveError(f"{archive.name}: entry {entry.name!r} is {reason}")
        path = PurePosixPath(entry.name)
        if not entry.is_folder:
            if path in files:
                raise ArchiveError(f"{archive.name}: entry {entry.name!r} occurs twice")
            files.add(path)
        kept.append(entry)
        total += entry.size_bytes
        if len(kept) > limits.entries:
            raise ArchiveError(f"{archive.name}: more than {limits.entries} entries")
        if total > limits.size_bytes:
            raise ArchiveError(f"{archive.name}: more than {limits.size_bytes} bytes unpacked")
        # Judged entry by entry: the listing of a compressed tape unpacks all that lies before an entry.
        if total > max(limits.ratio_from_bytes, limits.ratio * packed_bytes):
            raise ArchiveError(
                f"{archive.name}: {packed_bytes} bytes would become more than {limits.ratio} times as many"
            )
    for entry in kept:
        if hidden := files.intersection(PurePosixPath(entry.name).parents):
            raise ArchiveError(f"{archive.name}: entry {entry.name!r} lies below the file {hidden.pop()}")
    return kept


def _path_fault(name: str) -> str | None:
    path, windows = PurePosixPath(name), PureWindowsPath(name)
    if not name or "\0" in name:
        return "without a usable name"
    if path.is_absolute() or windows.is_absolute() or windows.drive or windows.root:
        return "an absolute path"
    if ".." in path.parts or ".." in windows.parts:
        return "a path with '..'"
    return None


def _write(archive: Path, opened: tarfile.TarFile | zipfile.ZipFile, entry: _Entry, target: Path) -> Path:
    path = target / PurePosixPath(entry.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    left = entry.size_bytes
    with _content(opened, entry) as source, path.open("xb") as out:
        while piece := source.read(min(_COPY_BYTES, left + 1)):
            left -= len(piece)
            if left < 0:
                raise ArchiveError(f"{archive.name}: entry {entry.name!r} is longer than its listing says")
            out.write(piece)
    if left:
        raise ArchiveError(f"{archive.name}: entry {entry.name!r} ends {left} bytes early")
    return path


def _content(opened: tarfile.TarFile | zipfile.ZipFile, entry: _Entry) -> IO[bytes]:
    if isinstance(opened, zipfile.ZipFile):
        assert isinstance(entry.member, zipfile.ZipInfo)
        return opened.open(entry.member)
    assert isinstance(entry.member, tarfile.TarInfo)
    source = opened.extractfile(entry.member)
    if source is None:
        raise ArchiveError(f"entry {entry.name!r} has no content")
    return source
