"""Where a store is and how to talk to it: for boto3, and as options for delta-rs and Arrow."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from pydantic import SecretStr

from tilewatch.infra.errors import SettingsError
from tilewatch.infra.settings import Settings

# A first contact must fail within ten seconds; transfers may wait longer for a busy disk.
CONNECT_TIMEOUT_S = 3
PROBE_TIMEOUT_S = 3
TRANSFER_TIMEOUT_S = 30
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Endpoint:
    """An S3 endpoint and a bucket in it. ``data_folder`` is the embedded store's disk, None for any other."""

    url: str
    bucket: str
    access_key: SecretStr
    secret_key: SecretStr
    region: str = "us-east-1"
    checksum_mode: str = "when_supported"
    data_folder: Path | None = None

    def client(self, attempts: int = 4, read_timeout_s: int = TRANSFER_TIMEOUT_S) -> Any:
        """A boto3 client that tries each request ``attempts`` times, waiting up to seconds in between."""
        self._keep_direct()
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=self.access_key.get_secret_value(),
            aws_secret_access_key=self.secret_key.get_secret_value(),
            region_name=self.region,
            config=Config(
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=read_timeout_s,
                retries={"mode": "standard", "total_max_attempts": attempts},
                request_checksum_calculation=self.checksum_mode,
                response_checksum_validation=self.checksum_mode,
                s3={"addressing_style": "path"},
            ),
        )

    def delta_options(self) -> dict[str, str]:
        """``storage_options`` of delta-rs and Polars. They hold the secret: never log them."""
        self._keep_direct()
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.access_key.get_secret_value(),
            "AWS_SECRET_ACCESS_KEY": self.secret_key.get_secret_value(),
            "AWS_REGION": self.region,
            "AWS_ALLOW_HTTP": "true",
            "aws_conditional_put": "etag",
        }

    def arrow_filesystem(self, prefix: str) -> Any:
        """Arrow's own S3 filesystem rooted at ``prefix`` in the bucket."""
        # pyarrow.fs loads the AWS SDK, which only readers of tables need.
        from pyarrow import fs

        address = urlsplit(self.url)
        return fs.SubTreeFileSystem(
            f"{self.bucket}/{prefix}",
            fs.S3FileSystem(
                access_key=self.access_key.get_secret_value(),
                secret_key=self.secret_key.get_secret_value(),
                region=self.region,
                scheme=address.scheme,
                endpoint_override=address.netloc,
                connect_timeout=CONNECT_TIMEOUT_S,
                request_timeout=TRANSFER_TIMEOUT_S,
                retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=3),
            ),
        )

    def _keep_direct(self) -> None:
        """Exempt this host from HTTP_PROXY: a proxy cannot reach a loopback store, and all three clients try.

        The environment is the only switch that boto3, delta-rs and Arrow have in common.
        """
        host = urlsplit(self.url).hostname or ""
        exempt = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
        if host in _LOOPBACK and host not in exempt.split(","):
            os.environ["no_proxy"] = os.environ["NO_PROXY"] = f"{exempt},{host}".strip(",")


def external(settings: Settings) -> Endpoint:
    """The endpoint that the settings name. Raises SettingsError if they name none."""
    if settings.s3_endpoint is None or settings.s3_access_key is None or settings.s3_secret_key is None:
        raise SettingsError("no s3_endpoint is set", "Set s3_endpoint, s3_access_key and s3_secret_key")
    return Endpoint(
        url=settings.s3_endpoint.rstrip("/"),
        bucket=settings.s3_bucket,
        access_key=settings.s3_access_key,
        secret_key=settings.s3_secret_key,
        region=settings.s3_region,
        checksum_mode=settings.s3_checksum_mode,
    )
