"""What botocore raises, said in the words of ``infra.errors``: one sentence, no traceback, no secret."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

from tilewatch.infra.errors import (
    BucketError,
    CredentialsError,
    NoSpaceError,
    ObjectMissingError,
    StoreError,
    StoreUnreachableError,
)
from tilewatch.infra.objects.endpoint import Endpoint

# The embedded store grows by whole volumes, and refuses writes when the disk has no room for another one.
VOLUME_BYTES = 256 * 2**20
# Stop earlier than that, with a clear word.
MIN_FREE_BYTES = 256 * 2**20

_UNREACHABLE_HINT = "Start it with 'tilewatch up', or check s3_endpoint; 'tilewatch doctor' shows more"
_SAY: dict[str, tuple[type[StoreError], str, str]] = {
    **dict.fromkeys(
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "Forbidden", "403", "401"),
        (CredentialsError, "the store refuses the credentials", "Check s3_access_key and s3_secret_key"),
    ),
    "NoSuchBucket": (BucketError, "the bucket does not exist", "Create it, or set s3_bucket"),
    **dict.fromkeys(("NoSuchKey", "404", "NotFound"), (ObjectMissingError, "there is no such object", "")),
    **dict.fromkeys(
        ("BadDigest", "XAmzContentChecksumMismatch", "InvalidDigest"),
        (StoreError, "the store found another checksum than the sender", "Send it again"),
    ),
    "XAmzContentSHA256Mismatch": (
        StoreError,
        "the store does not understand the SDK's checksums",
        "Set s3_checksum_mode to when_required",
    ),
}


def code_of(error: ClientError) -> str:
    """The S3 error code, or the HTTP status as text where the answer had no body."""
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: ClientError) -> int:
    """The HTTP status of the answer, 0 where there was none."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


@contextmanager
def explained(endpoint: Endpoint, action: str) -> Iterator[None]:
    """Run a store call; ``action`` completes "cannot …". Raises only errors of ``infra.errors``."""
    try:
        yield
    except ClientError as error:
        raise _client_error(endpoint, action, error) from None
    except (ConnectionError, HTTPClientError) as error:
        raise StoreUnreachableError(
            f"cannot {action}: nothing answers at {endpoint.url} ({_last_word(error)})", _UNREACHABLE_HINT
        ) from None
    except BotoCoreError as error:
        raise StoreError(f"cannot {action} at {endpoint.url}: {type(error).__name__}") from None


def check_space(endpoint: Endpoint, needed_bytes: int = 0, spare_bytes: int | None = None) -> None:
    """Raise NoSpaceError if the embedded store's disk cannot take ``needed_bytes`` and keep a reserve."""
    if endpoint.data_folder is None:
        return
    free_bytes = shutil.disk_usage(endpoint.data_folder).free
    if free_bytes < needed_bytes + (MIN_FREE_BYTES if spare_bytes is None else spare_bytes):
        raise NoSpaceError(
            f"the disk under {endpoint.data_folder} is full: {free_bytes >> 20} MiB free",
            "Free space there, or set TILEWATCH_HOME to a folder on a larger disk",
        )


def _client_error(endpoint: Endpoint, action: str, error: ClientError) -> StoreError:
    code, status = code_of(error), status_of(error)
    if known := _SAY.get(code):
        kind, sentence, hint = known
        return kind(f"cannot {action}: {sentence} ({endpoint.url}, bucket {endpoint.bucket}, {code})", hint)
    if status == 507 or "space" in str(error).lower():
        return NoSpaceError(f"cannot {action}: the store at {endpoint.url} has no space left")
    if status >= 500:
        try:
            check_space(endpoint, spare_bytes=2 * VOLUME_BYTES)
        except NoSpaceError as full:
            return full
    return StoreError(f"cannot {action}: {endpoint.url} answered {status} {code}", "See 'tilewatch doctor'")


def _last_word(error: Any) -> str:
    """Reason without addresses and headers: botocore's text may quote a whole request."""
    cause = error.kwargs.get("error") if hasattr(error, "kwargs") else None
    reason = str(cause or type(error).__name__)
    return reason.rsplit(": ", 1)[-1].strip("')>") or type(error).__name__
