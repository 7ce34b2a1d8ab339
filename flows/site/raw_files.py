"""The raw files of captures: listed from the manifest, given out unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewatch.infra.errors import ObjectMissingError
from tilewatch.infra.objects import ObjectStore
from tilewatch.tasks.collect.manifest import NAME, ManifestFile, parse_manifest

BLOCK_BYTES = 2**18


class RawFiles:
    """Reads captures of an object store. Only what a manifest lists can be reached."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def listed(self, prefix: str | None) -> dict[str, Any]:
        """``files`` of the capture under ``prefix``, and ``files_reason`` if there are none."""
        if not prefix:
            return {"files": [], "files_reason": "This capture has no files in the store."}
        try:
            return {"files": list(self._files(prefix)), "files_reason": ""}
        except ObjectMissingError:
            reason = "The raw files are not in the store any more: `tilewatch prune` deleted them."
            return {"files": [], "files_reason": reason}

    def opened(self, prefix: str, path: str) -> tuple[ManifestFile, Iterator[bytes]]:
        """One file and its content in blocks. Raises ObjectMissingError for a path the manifest lacks."""
        for file in self._files(prefix):
            if file.path == path:
                return file, self._blocks(f"{prefix}/{path}")
        raise ObjectMissingError(f"the capture has no file {path}")

    def _files(self, prefix: str) -> tuple[ManifestFile, ...]:
        name = f"{prefix}/{NAME}"
        return tuple(parse_manifest(self._store.get(name), name).files)

    def _blocks(self, key: str) -> Iterator[bytes]:
        with self._store.open_read(key) as source:
            while block := source.read(BLOCK_BYTES):
                yield block
