"""The capture folder: rows appended as they come, documents replaced whole, the manifest last of all.

A capture without ``manifest.json`` is incomplete and never read as data, so nothing is made durable before
the end: then every file is, then the manifest is written beside, made durable and renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping

from method_version import SCHEMA_VERSION

MANIFEST = "manifest.json"
READ_BYTES = 1 << 20


class CaptureError(RuntimeError):
    """A folder that cannot become a capture."""


class CaptureFolder:
    """One capture being written. Raises CaptureError where ``path`` already holds something."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise CaptureError(f"{path}: not empty; a capture needs a folder of its own")
        (path / "profiler").mkdir()
        (path / "log").mkdir()

    def document(self, name: str, content: Mapping[str, Any]) -> None:
        """Write one JSON document."""
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        (self.path / name).write_text(text + "\n", encoding="utf-8")

    def rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows, one JSON object a line."""
        with (self.path / name).open("a", encoding="utf-8") as stream:
            for row in rows:
                stream.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")

    def finish(self) -> None:
        """Make every file durable, then the manifest that lists them. Nothing may be written afterwards."""
        for name in ("profiler", "log"):
            if not any((self.path / name).iterdir()):
                (self.path / name).rmdir()
        paths = sorted(path for path in self.path.rglob("*") if path.is_file())
        files: List[Dict[str, Any]] = [_entry(path, self.path) for path in paths]
        manifest = {"schema_version": SCHEMA_VERSION, "files": files}
        temporary = self.path / (MANIFEST + ".part")
        temporary.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        _make_durable(temporary)
        temporary.replace(self.path / MANIFEST)
        for folder in (*(p for p in self.path.iterdir() if p.is_dir()), self.path, self.path.parent):
            _make_durable(folder)


def _entry(path: Path, root: Path) -> Dict[str, Any]:
    digest = hashlib.sha256()
    size_bytes = 0
    with path.open("rb") as stream:
        while piece := stream.read(READ_BYTES):
            digest.update(piece)
            size_bytes += len(piece)
        os.fsync(stream.fileno())
    return {
        "path": path.relative_to(root).as_posix(),
        "size_bytes": size_bytes,
        "sha256": digest.hexdigest(),
    }


def _make_durable(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
