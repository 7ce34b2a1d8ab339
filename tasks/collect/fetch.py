"""A capture from the store back into a folder, verified, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from tilewatch.tasks.collect.manifest import (
    NAME,
    CaptureError,
    Manifest,
    ManifestFile,
    parse_manifest,
    read_manifest,
)
from tilewatch.tasks.collect.store import ObjectStore

BLOCK_BYTES = 2**20


def fetch_capture(store: ObjectStore, capture_prefix: str, target_folder: Path) -> Manifest:
    """Download a capture into ``target_folder``, which appears complete or not at all.

    A folder that holds the same capture is left as it is. Raises CaptureError where any file differs from
    the manifest, or the manifest from the name of the capture.
    """
    manifest = parse_manifest(store.get(f"{capture_prefix}/{NAME}"), f"{capture_prefix}/{NAME}")
    if manifest.capture_id != capture_prefix.rsplit("/", 1)[-1]:
        raise CaptureError(f"{capture_prefix}: its manifest belongs to capture {manifest.capture_id}")
    if (target_folder / NAME).is_file():
        return _same(target_folder, manifest)
    target_folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target_folder.name}.", dir=target_folder.parent))
    try:
        for file in manifest.files:
            _download(store, f"{capture_prefix}/{file.path}", draft / file.path, file)
        (draft / NAME).write_bytes(manifest.content)
        draft.chmod(0o755)
        try:
            os.rename(draft, target_folder)  # noqa: PTH104 - Path.rename hides that an existing folder refuses
        except OSError:
            # Another process fetched it meanwhile, or the folder holds something else.
            return _same(target_folder, manifest)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return manifest


def _download(store: ObjectStore, key: str, path: Path, expected: ManifestFile) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, size_bytes = hashlib.sha256(), 0
    with store.open_read(key) as source, path.open("wb") as target:
        while block := source.read(BLOCK_BYTES):
            digest.update(block)
            size_bytes += len(block)
            target.write(block)
    if (size_bytes, digest.hexdigest()) != (expected.size_bytes, expected.sha256):
        raise CaptureError(
            f"{key}: differs from its manifest ({size_bytes} bytes, {expected.size_bytes} listed)"
        )


def _same(folder: Path, manifest: Manifest) -> Manifest:
    if read_manifest(folder).content != manifest.content:
        raise CaptureError(f"{folder} holds another capture than {manifest.capture_id}")
    return manifest
