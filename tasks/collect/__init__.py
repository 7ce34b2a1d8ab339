"""Capture folders into the object store: create-only, content-addressed, manifest last."""

from tasks.collect.archive import CaptureRef, archive_capture, list_captures
from tasks.collect.fetch import fetch_capture
from tasks.collect.manifest import CaptureError, Manifest, read_manifest, write_manifest
from tasks.collect.store import ObjectStore

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
