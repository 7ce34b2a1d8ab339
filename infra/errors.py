"""What stores, services, tables and settings refuse; the base of all is in ``data_contracts/errors.py``."""

from __future__ import annotations

import errno

from tilewatch.data_contracts.errors import ENVIRONMENT, USAGE, TilewatchError


class SettingsError(TilewatchError):
    """A setting that cannot be used: names the file or environment variable, the key and what is allowed."""

    exit_code = USAGE


class StoreError(TilewatchError):
    """The object store refused or failed in a way that has no more exact name below."""


class StoreUnreachableError(StoreError):
    """Nothing answers at the store's address, or it stopped answering."""

    exit_code = ENVIRONMENT


class CredentialsError(StoreError):
    """The store does not accept the access key, or the key may not do what was asked."""

    exit_code = ENVIRONMENT


class BucketError(StoreError):
    """The bucket does not exist."""

    exit_code = ENVIRONMENT


class NoSpaceError(StoreError):
    """The disk under the store, or under a local folder, is full or nearly full."""

    exit_code = ENVIRONMENT


class ObjectExistsError(StoreError):
    """A create-only write found another content under its key. Nothing was overwritten."""


class ObjectMissingError(StoreError):
    """There is no object under the key."""


class ServiceError(TilewatchError):
    """A local service could not be started or stopped."""

    exit_code = ENVIRONMENT


class TableError(TilewatchError):
    """A table could not be written or read."""


class QueryError(TilewatchError):
    """SQL that DuckDB refuses; the message is DuckDB's own."""

    exit_code = USAGE


def is_full(error: BaseException) -> bool:
    """Whether the error is that of a full disk or quota: time alone does not mend it."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
