"""The object store: create-only writes, checksums, resumable uploads, over any S3 endpoint."""

from infra.objects.endpoint import Endpoint
from infra.objects.store import ObjectInfo, ObjectStore

__all__ = ["Endpoint", "ObjectInfo", "ObjectStore"]
