"""A capture folder into the raw zone: ``raw/<experiment>/<build>/<capture id>/…``.

Every file is created, none replaced; the manifest goes last, so a capture without one does not exist yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tilewatch.tasks.collect.manifest import NAME, CaptureError, Manifest, read_manifest, verify
from tilewatch.tasks.collect.store import ObjectStore

RAW = "raw"
# Uploads wait for the disk more than for the processor.
UPLOADS_AT_ONCE = 4


@dataclass(frozen=True)
class CaptureRef:
    """A capture in the store. ``prefix`` is its folder there, without a closing slash."""

    capture_id: str
    prefix: str
    file_count: int
    size_bytes: int
    created: bool


def archive_capture(folder: Path, store: ObjectStore, prefix: str = RAW) -> CaptureRef:
    """Verify a capture and store it; a second call, or one after a kill, sends only what is missing.

    Raises CaptureError where folder and manifest disagree; errors of the store pass through.
    """
    manifest = read_manifest(folder)
    verify(folder, manifest)
    target = capture_prefix(folder, manifest, prefix)
    created = not store.exists(f"{target}/{NAME}")
    if created:
        with ThreadPoolExecutor(UPLOADS_AT_ONCE) as pool:
            uploads = [
                pool.submit(store.put_new, f"{target}/{f.path}", folder / f.path) for f in manifest.files
            ]
            for upload in uploads:
                upload.result()
        created = store.put_new(f"{target}/{NAME}", manifest.content)
    return CaptureRef(manifest.capture_id, target, len(manifest.files), manifest.size_bytes, created)


def list_captures(store: ObjectStore, prefix: str = RAW) -> Iterator[str]:
    """Prefixes of all complete captures, sorted; ``prefix`` is the raw zone or a folder in it."""
    for item in store.list(f"{prefix}/"):
        parts = item.key.split("/")
        # raw / experiment / build / capture / manifest.json: deeper ones belong to a capture's own files
        if len(parts) == 5 and parts[-1] == NAME:
            yield "/".join(parts[:-1])


def capture_prefix(folder: Path, manifest: Manifest, prefix: str = RAW) -> str:
    """Where a capture belongs, by its ``capture.json``; ``ingested/unknown`` where it does not say."""
    try:
        identity = json.loads((folder / "capture.json").read_bytes())
        experiment, build = identity.get("experiment"), _label(identity.get("build"))
    except FileNotFoundError:
        experiment, build = None, None
    except (ValueError, AttributeError) as error:
        raise CaptureError(f"{folder / 'capture.json'}: {error}") from error
    return "/".join(
        (prefix, key_part(experiment or "ingested"), key_part(build or "unknown"), manifest.capture_id)
    )


def key_part(label: str) -> str:
    """A label as one part of a key: everything but letters, digits and ``-_.~+`` becomes ``%XX``."""
    escaped = quote(label, safe="+")
    return escaped.replace(".", "%2E") if set(escaped) == {"."} else escaped


def _label(build: Any) -> str | None:
    return build.get("label") if isinstance(build, dict) else build
