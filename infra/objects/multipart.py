"""Large files in parts: create-only, and an interrupted upload goes on where it stopped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

PART_BYTES = 16 * 2**20
MAX_PARTS = 9_000  # S3 allows 10 000


def part_bytes(size_bytes: int) -> int:
    """Bytes of every part but the last; depends on the size alone, so that a resumed upload cuts alike."""
    return max(PART_BYTES, -(-size_bytes // MAX_PARTS))


def part_digests(path: Path) -> list[bytes]:
    """SHA-256 of each part of the file, in order."""
    with path.open("rb") as file:
        return [hashlib.sha256(block).digest() for block in _blocks(file, part_bytes(path.stat().st_size))]


def composite(digests: list[bytes]) -> str:
    """The checksum S3 stores for an object made of parts: hash of the hashes, then the number of parts."""
    return f"{_encoded(hashlib.sha256(b''.join(digests)).digest())}-{len(digests)}"


def upload(client: Any, bucket: str, key: str, path: Path, digests: list[bytes]) -> None:
    """Upload ``path`` under ``key`` unless the key exists. Parts that are there already are not sent again.

    Raises botocore's ClientError: 412 where the key exists, NoSuchUpload where another process, uploading
    the same file, has completed or aborted the upload.
    """
    upload_id, present = _resumable(client, bucket, key, digests)
    with path.open("rb") as file:
        for number, block in enumerate(_blocks(file, part_bytes(path.stat().st_size)), start=1):
            if number not in present:
                present[number] = client.upload_part(
                    Bucket=bucket,
                    Key=key,
                    UploadId=upload_id,
                    PartNumber=number,
                    Body=block,
                    ChecksumSHA256=_encoded(digests[number - 1]),
                )["ETag"]
    parts = [
        {"PartNumber": number, "ETag": present[number], "ChecksumSHA256": _encoded(digest)}
        for number, digest in enumerate(digests, start=1)
    ]
    client.complete_multipart_upload(
        Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": parts}, IfNoneMatch="*"
    )


def abort_stale(client: Any, bucket: str, older_than: timedelta) -> int:
    """Abort unfinished uploads begun longer ago than ``older_than``; younger ones may still be resumed."""
    limit = datetime.now(UTC) - older_than
    stale = [item for item in unfinished(client, bucket, "") if item["Initiated"] < limit]
    for item in stale:
        client.abort_multipart_upload(Bucket=bucket, Key=item["Key"], UploadId=item["UploadId"])
    return len(stale)


def unfinished(client: Any, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    """Uploads under ``prefix`` that were begun and neither completed nor aborted, in S3's own terms."""
    for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix):
        yield from page.get("Uploads", [])


def _resumable(client: Any, bucket: str, key: str, digests: list[bytes]) -> tuple[str, dict[int, str]]:
    """An upload of this very content to go on with: its id and the ETags of its parts by number.

    Uploads that hold any foreign part are left alone: another process may be at work on them.
    """
    expected = {number: _encoded(digest) for number, digest in enumerate(digests, start=1)}
    for item in unfinished(client, bucket, key):
        if item["Key"] != key:
            continue
        pages = client.get_paginator("list_parts").paginate(Bucket=bucket, Key=key, UploadId=item["UploadId"])
        parts = [part for page in pages for part in page.get("Parts", [])]
        if parts and all(part.get("ChecksumSHA256") == expected.get(part["PartNumber"]) for part in parts):
            return item["UploadId"], {part["PartNumber"]: part["ETag"] for part in parts}
    begun = client.create_multipart_upload(Bucket=bucket, Key=key, ChecksumAlgorithm="SHA256")
    return begun["UploadId"], {}


def _blocks(file: Any, size_bytes: int) -> Iterator[bytes]:
    while block := file.read(size_bytes):
        yield block


def _encoded(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
