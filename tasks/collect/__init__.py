"""Capture folders into the object store: create-only, content-addressed, manifest last."""

from tilewatch.tasks.collect.archive import CaptureRef, archive_capture, list_captures
from tilewatch.tasks.collect.fetch import fetch_capture
from tilewatch.tasks.collect.manifest import CaptureError, Manifest, read_manifest, write_manifest
from tilewatch.tasks.collect.store import ObjectStore

__all__ = [
    "CaptureError",
    "CaptureRef",
    "Manifest",
    "ObjectStore",
    "archive_capture",
    "fetch_capture",
    "list_captures",
    "read_manifest",
    "write_manifest",
]
