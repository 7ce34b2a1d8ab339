"""``manifest.json`` of a capture: every file with size and SHA-256; its own hash names the capture."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.tasks.files import write_whole

NAME = "manifest.json"
SCHEMA_VERSION = 1
CAPTURE_ID_DIGITS = 32


class CaptureError(TilewatchError):
    """A capture that is incomplete, damaged or does not say what it is; the message names the file."""


@dataclass(frozen=True)
class ManifestFile:
    """One file of a capture: POSIX path relative to its folder, size and hex SHA-256."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The files of a capture and the capture's identity, which follows from the manifest's bytes."""

    files: tuple[ManifestFile, ...]
    content: bytes

    @property
    def capture_id(self) -> str:
        """First 32 hex digits of the manifest's SHA-256."""
        return hashlib.sha256(self.content).hexdigest()[:CAPTURE_ID_DIGITS]

    @property
    def size_bytes(self) -> int:
        """Size of all files together, the manifest left out."""
        return sum(file.size_bytes for file in self.files)


def parse_manifest(content: bytes, where: str) -> Manifest:
    """Read a manifest's bytes; ``where`` names them in errors. Raises CaptureError."""
    try:
        document = json.loads(content)
        version = document["schema_version"]
        files = tuple(_file(entry) for entry in document["files"])
    except (ValueError, KeyError, TypeError) as error:
        raise CaptureError(f"{where} is not a manifest: {type(error).__name__} {error}") from error
    if version != SCHEMA_VERSION:
        raise CaptureError(f"{where} has schema version {version}; this program reads {SCHEMA_VERSION}")
    if len({file.path for file in files}) != len(files):
        raise CaptureError(f"{where} lists a file twice")
    return Manifest(files, content)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a capture folder. Raises CaptureError where there is none: it is incomplete."""
    try:
        content = (folder / NAME).read_bytes()
    except FileNotFoundError:
        raise CaptureError(f"{folder} has no {NAME}: the capture is incomplete") from None
    return parse_manifest(content, str(folder / NAME))


def verify(folder: Path, manifest: Manifest) -> None:
    """Compare the folder with its manifest. Raises CaptureError naming the first file that differs."""
    for file in manifest.files:
        path = folder / file.path
        if path.is_symlink() or not path.is_file():
            raise CaptureError(f"{path}: listed in the manifest but not there as a plain file")
        found = _described(folder, path)
        if found != file:
            raise CaptureError(
                f"{path}: {found.size_bytes} bytes differ from the {file.size_bytes} of its manifest"
            )
    listed = {file.path for file in manifest.files}
    present = {path.relative_to(folder).as_posix() for path in _plain_files(folder)}
    if extra := sorted(present - listed):
        raise CaptureError(f"{folder / extra[0]}: not in the manifest, so it would be lost")


def write_manifest(folder: Path) -> Manifest:
    """Describe every file of ``folder`` and write the manifest, whole or not at all. For ingested captures.

    The measuring program writes its own in the same form.
    """
    files = [_described(folder, path) for path in sorted(_plain_files(folder))]
    document = {
        "schema_version": SCHEMA_VERSION,
        "files": [{"path": f.path, "size_bytes": f.size_bytes, "sha256": f.sha256} for f in files],
    }
    write_whole(folder / NAME, json.dumps(document, indent=1))
    return read_manifest(folder)


def _plain_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_symlink():
            raise CaptureError(f"{path}: a capture holds plain files only, not links")
        if path.is_file() and path != folder / NAME:
            yield path


def _described(folder: Path, path: Path) -> ManifestFile:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return ManifestFile(path.relative_to(folder).as_posix(), path.stat().st_size, digest)


def _file(entry: dict[str, Any]) -> ManifestFile:
    path = PurePosixPath(entry["path"])
    if path.is_absolute() or ".." in path.parts or str(path) != entry["path"] or str(path) in (".", NAME):
        raise ValueError(f"path {entry['path']!r} is not allowed")
    return ManifestFile(str(path), int(entry["size_bytes"]), str(entry["sha256"]))
