"""What a store must be able to do before captures and tables are trusted to it, tried out for real.

Some S3-compatible stores answer a create-only write with success twice, or store what a wrong checksum
came with; both lose data silently, so each is provoked here.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from botocore.exceptions import ClientError

from tilewatch.infra.objects import Endpoint, ObjectStore
from tilewatch.infra.objects.failures import code_of, explained

RACE_WRITERS = 4
RACE_KEYS = 10
SMALLEST_PART_BYTES = 5 * 2**20  # S3's own limit for every part but the last


def round_trip(store: ObjectStore, prefix: str) -> str:
    """Write and read back; returns what is wrong, empty if nothing is."""
    content = hashlib.sha256(prefix.encode()).digest() * 100
    store.put_new(f"{prefix}/bytes", content)
    return "" if store.get(f"{prefix}/bytes") == content else "bytes come back changed"


def create_only_race(endpoint: Endpoint, prefix: str) -> str:
    """Let several writers create the same keys at once; returns what is wrong, empty if nothing is."""
    barrier = threading.Barrier(RACE_WRITERS)

    def create_all(writer: int) -> list[bool]:
        client = endpoint.client()
        barrier.wait()
        return [
            _created(client, endpoint.bucket, f"{prefix}/race/{n}", str(writer)) for n in range(RACE_KEYS)
        ]

    with explained(endpoint, "create objects"), ThreadPoolExecutor(RACE_WRITERS) as pool:
        outcomes = list(pool.map(create_all, range(RACE_WRITERS)))
    winners = [sum(column) for column in zip(*outcomes, strict=True)]
    wrong = sum(count != 1 for count in winners)
    return f"{wrong} of {RACE_KEYS} contested keys were not created exactly once" if wrong else ""


def bad_checksum(endpoint: Endpoint, prefix: str) -> str:
    """Send content with another content's checksum; returns what is wrong, empty if nothing is."""
    wrong = base64.b64encode(hashlib.sha256(b"other").digest()).decode()
    try:
        endpoint.client().put_object(
            Bucket=endpoint.bucket, Key=f"{prefix}/damaged", Body=b"content", ChecksumSHA256=wrong
        )
    except ClientError:
        return ""
    return "an object was stored although its checksum was wrong"


def multipart(endpoint: Endpoint, prefix: str) -> str:
    """Upload in two parts, twice; returns what is wrong, empty if nothing is."""
    key, blocks = f"{prefix}/parts", [bytes(SMALLEST_PART_BYTES), b"last"]
    client = endpoint.client()
    with explained(endpoint, "upload in parts"):
        _upload(client, endpoint.bucket, key, blocks)
        if client.get_object(Bucket=endpoint.bucket, Key=key)["Body"].read() != b"".join(blocks):
            return "an object uploaded in parts comes back changed"
        try:
            _upload(client, endpoint.bucket, key, blocks)
        except ClientError as error:
            if code_of(error) in ("PreconditionFailed", "412"):
                return ""
            raise
    return "an upload in parts replaced an object although it was to create it"


def clock_skew_s(endpoint: Endpoint) -> float:
    """Seconds by which the store's clock is ahead of this host's, from the answer's Date header."""
    with explained(endpoint, "ask the store for its time"):
        answer = endpoint.client().head_bucket(Bucket=endpoint.bucket)
    date = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    return (date - datetime.now(UTC)).total_seconds()


def _created(client: Any, bucket: str, key: str, content: str) -> bool:
    try:
        client.put_object(Bucket=bucket, Key=key, Body=content.encode(), IfNoneMatch="*")
    except ClientError as error:
        if code_of(error) in ("PreconditionFailed", "412", "ConditionalRequestConflict"):
            return False
        raise
    return True


def _upload(client: Any, bucket: str, key: str, blocks: list[bytes]) -> None:
    upload_id = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    target = {"Bucket": bucket, "Key": key, "UploadId": upload_id}
    tags = [
        client.upload_part(**target, PartNumber=number, Body=block)["ETag"]
        for number, block in enumerate(blocks, start=1)
    ]
    parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, start=1)]
    try:
        client.complete_multipart_upload(**target, MultipartUpload={"Parts": parts}, IfNoneMatch="*")
    except ClientError:
        client.abort_multipart_upload(**target)
        raise
