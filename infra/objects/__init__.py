"""The object store: create-only writes, checksums, resumable uploads, over any S3 endpoint."""

from tilewatch.infra.objects.endpoint import Endpoint
from tilewatch.infra.objects.store import ObjectInfo, ObjectStore

__all__ = ["Endpoint", "ObjectInfo", "ObjectStore"]
