"""Large files in parts: create-only, and an interrupted upload goes on where it stopped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

PART_BYTES = 16 * 2**20
MAX_PARTS = 9_000  # S3 allows 10 000


def part_bytes(size_bytes: int) -> int:
    """Bytes of every part but the last; depends on the size alone, so that a resumed upload cuts alike."""
    return max(PART_BYTES, -(-size_bytes // MAX_PARTS))


@dataclass(frozen=True)
class Part:
    """Digests of one part: SHA-256, which the store verifies, and the ETag by which some stores list it."""

    sha256: bytes
    etag: str

    @property
    def checksum(self) -> str:
        """The SHA-256 as S3 writes it."""
        return base64.b64encode(self.sha256).decode()

    def is_listed_as(self, listed: dict[str, Any]) -> bool:
        """Whether an entry of ListParts is this part."""
        if "ChecksumSHA256" in listed:
            return bool(listed["ChecksumSHA256"] == self.checksum)
        return bool(listed["ETag"].strip('"') == self.etag)


def parts_of(path: Path) -> list[Part]:
    """Digests of each part of the file, in order."""
    with path.open("rb") as file:
        return [
            Part(hashlib.sha256(block).digest(), hashlib.md5(block, usedforsecurity=False).hexdigest())
            for block in _blocks(file, part_bytes(path.stat().st_size))
        ]


def composite(parts: list[Part]) -> str:
    """The checksum S3 stores for an object made of parts: hash of the hashes, then the number of parts."""
    digest = hashlib.sha256(b"".join(part.sha256 for part in parts)).digest()
    return f"{base64.b64encode(digest).decode()}-{len(parts)}"


def upload(client: Any, bucket: str, key: str, path: Path, parts: list[Part]) -> None:
    """Upload ``path`` under ``key`` unless the key exists. Parts that are there already are not sent again.

    Raises botocore's ClientError: 412 where the key exists, NoSuchUpload where another process, uploading
    the same file, has completed or aborted the upload.
    """
    upload_id, present = _resumable(client, bucket, key, parts)
    with path.open("rb") as file:
        for number, block in enumerate(_blocks(file, part_bytes(path.stat().st_size)), start=1):
            if number not in present:
                present[number] = client.upload_part(
                    Bucket=bucket,
                    Key=key,
                    UploadId=upload_id,
                    PartNumber=number,
                    Body=block,
                    ChecksumSHA256=parts[number - 1].checksum,
                )["ETag"]
    listed = [
        {"PartNumber": number, "ETag": present[number], "ChecksumSHA256": part.checksum}
        for number, part in enumerate(parts, start=1)
    ]
    client.complete_multipart_upload(
        Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": listed}, IfNoneMatch="*"
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


def _resumable(client: Any, bucket: str, key: str, parts: list[Part]) -> tuple[str, dict[int, str]]:
    """An upload of this very content to go on with: its id and the ETags of its parts by number.

    Uploads that hold any foreign part are left alone: another process may be at work on them.
    """
    expected = dict(enumerate(parts, start=1))
    for item in unfinished(client, bucket, key):
        if item["Key"] != key:
            continue
        pages = client.get_paginator("list_parts").paginate(Bucket=bucket, Key=key, UploadId=item["UploadId"])
        present = {part["PartNumber"]: part for page in pages for part in page.get("Parts", [])}
        if present and all(n in expected and expected[n].is_listed_as(p) for n, p in present.items()):
            return item["UploadId"], {number: part["ETag"] for number, part in present.items()}
    begun = client.create_multipart_upload(Bucket=bucket, Key=key, ChecksumAlgorithm="SHA256")
    return begun["UploadId"], {}


def _blocks(file: Any, size_bytes: int) -> Iterator[bytes]:
    while block := file.read(size_bytes):
        yield block
