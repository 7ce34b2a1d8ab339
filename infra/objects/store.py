"""The object store over boto3: what is written once stays as it is."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

from botocore.exceptions import ClientError

from tilewatch.infra.errors import BucketError, ObjectExistsError, ObjectMissingError
from tilewatch.infra.objects import multipart
from tilewatch.infra.objects.endpoint import PROBE_TIMEOUT_S, Endpoint
from tilewatch.infra.objects.failures import check_space, code_of, explained, status_of

BLOCK_BYTES = 2**20
# 412: the key exists. NoSuchUpload: another process finished the same upload. 409: two came at once.
_BEATEN = {"PreconditionFailed", "412", "NoSuchUpload", "ConditionalRequestConflict"}


@dataclass(frozen=True)
class ObjectInfo:
    """One object: its key, its size and, where asked for, its SHA-256 checksum as S3 writes it."""

    key: str
    size_bytes: int
    checksum: str | None = None


class ObjectStore:
    """Objects of one bucket. Keys are relative to the bucket; every method raises StoreError on failure."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.bucket = endpoint.bucket

    @cached_property
    def _client(self) -> Any:
        return self.endpoint.client()

    def check(self) -> None:
        """Say within ten seconds whether the store answers, accepts the key and has the bucket."""
        with explained(self.endpoint, "open the object store"):
            try:
                impatient = self.endpoint.client(attempts=2, read_timeout_s=PROBE_TIMEOUT_S)
                impatient.head_bucket(Bucket=self.bucket)
            except ClientError as error:
                if status_of(error) != 404:
                    raise
                raise BucketError(
                    f"{self.endpoint.url} has no bucket {self.bucket}", "Create it, or set s3_bucket"
                ) from None

    def put_new(self, key: str, body: bytes | Path) -> bool:
        """Create ``key``. True: written now. False: the same content was there already.

        Raises ObjectExistsError if the key holds another content, which is left as it is.
        """
        size_bytes = body.stat().st_size if isinstance(body, Path) else len(body)
        check_space(self.endpoint, size_bytes)
        with explained(self.endpoint, f"write {key}"):
            if isinstance(body, Path) and size_bytes > multipart.PART_BYTES:
                return self._put_new_in_parts(key, body, size_bytes)
            content = body.read_bytes() if isinstance(body, Path) else body
            checksum = base64.b64encode(hashlib.sha256(content).digest()).decode()
            try:
                self._client.put_object(
                    Bucket=self.bucket, Key=key, Body=content, ChecksumSHA256=checksum, IfNoneMatch="*"
                )
            except ClientError as error:
                if code_of(error) not in _BEATEN:
                    raise
                self._refuse_unless_same(ObjectInfo(key, size_bytes, checksum), content)
                return False
            return True

    def replace(self, key: str, body: bytes) -> None:
        """Write ``key`` whatever it held. Only for pointers such as ``latest``: data is never replaced."""
        check_space(self.endpoint, len(body))
        with explained(self.endpoint, f"write {key}"):
            self._client.put_object(Bucket=self.bucket, Key=key, Body=body, ChecksumAlgorithm="SHA256")

    def get(self, key: str) -> bytes:
        """Content of ``key``. Raises ObjectMissingError."""
        with self.open_read(key) as stream:
            return stream.read()

    @contextmanager
    def open_read(self, key: str) -> Iterator[IO[bytes]]:
        """Stream the content of ``key``. Raises ObjectMissingError."""
        with explained(self.endpoint, f"read {key}"):
            body = self._client.get_object(Bucket=self.bucket, Key=key)["Body"]
            try:
                yield cast(IO[bytes], body)
            finally:
                body.close()

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose key starts with ``prefix``, sorted by key."""
        with explained(self.endpoint, f"list {prefix}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
            for page in pages:
                for item in page.get("Contents", []):
                    yield ObjectInfo(item["Key"], item["Size"])

    def head(self, key: str) -> ObjectInfo:
        """Size and checksum of ``key``. Raises ObjectMissingError."""
        with explained(self.endpoint, f"look up {key}"):
            found = self._client.head_object(Bucket=self.bucket, Key=key, ChecksumMode="ENABLED")
            return ObjectInfo(key, found["ContentLength"], found.get("ChecksumSHA256"))

    def exists(self, key: str) -> bool:
        """Whether there is an object under ``key``."""
        try:
            self.head(key)
        except ObjectMissingError:
            return False
        return True

    def delete_prefix(self, prefix: str) -> int:
        """Delete all objects whose key starts with ``prefix``; returns how many. For retention and tests."""
        keys = [info.key for info in self.list(prefix)]
        with explained(self.endpoint, f"delete {prefix}"):
            for start in range(0, len(keys), 1000):
                batch = [{"Key": key} for key in keys[start : start + 1000]]
                answer = self._client.delete_objects(
                    Bucket=self.bucket, Delete={"Objects": batch, "Quiet": True}
                )
                # Refusals come one by one, in an answer that says it is well.
                for refused in answer.get("Errors", []):
                    raise ClientError({"Error": refused}, "DeleteObjects")
        return len(keys)

    def _put_new_in_parts(self, key: str, path: Path, size_bytes: int) -> bool:
        parts = multipart.parts_of(path)
        new = ObjectInfo(key, size_bytes, multipart.composite(parts))
        if self.exists(key):
            self._refuse_unless_same(new, path)
            return False
        try:
            multipart.upload(self._client, self.bucket, key, path, parts)
        except ClientError as error:
            if code_of(error) not in _BEATEN:
                raise
            self._refuse_unless_same(new, path)
            return False
        return True

    def _refuse_unless_same(self, new: ObjectInfo, content: bytes | Path) -> None:
        """After a lost create: nothing where the key holds the same content, else ObjectExistsError."""
        found = self.head(new.key)
        if found == new or (found.size_bytes == new.size_bytes and self._same_bytes(new.key, content)):
            return
        raise ObjectExistsError(
            f"{new.key} exists with another content ({found.size_bytes} bytes there, {new.size_bytes} here)",
            "Stored objects never change; look for two captures that claim the same identity",
        )

    def _same_bytes(self, key: str, content: bytes | Path) -> bool:
        """Compare byte by byte: for stores that keep no checksum, or one made of other parts."""
        mine = content.open("rb") if isinstance(content, Path) else io.BytesIO(content)
        with mine, self.open_read(key) as theirs:
            while block := mine.read(BLOCK_BYTES):
                if theirs.read(len(block)) != block:
                    return False
        return True
