"""The one base of every error a person is meant to read: a sentence, and what to do about it."""

from __future__ import annotations

import errno


class TilewatchError(Exception):
    """A failure in one sentence; ``hint`` says what to do. The CLI prints both, never a traceback."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __reduce__(self) -> tuple[type[TilewatchError], tuple[str, str]]:
        """Errors cross process borders, so the hint has to survive pickling."""
        return type(self), (str(self), self.hint)


class SettingsError(TilewatchError):
    """A setting that cannot be used: names the file or environment variable, the key and what is allowed."""


class StoreError(TilewatchError):
    """The object store refused or failed in a way that has no more exact name below."""


class StoreUnreachableError(StoreError):
    """Nothing answers at the store's address, or it stopped answering."""


class CredentialsError(StoreError):
    """The store does not accept the access key, or the key may not do what was asked."""


class BucketError(StoreError):
    """The bucket does not exist."""


class NoSpaceError(StoreError):
    """The disk under the store, or under a local folder, is full or nearly full."""


class ObjectExistsError(StoreError):
    """A create-only write found another content under its key. Nothing was overwritten."""


class ObjectMissingError(StoreError):
    """There is no object under the key."""


class ServiceError(TilewatchError):
    """A local service could not be started or stopped."""


class TableError(TilewatchError):
    """A table could not be written or read."""


class QueryError(TilewatchError):
    """SQL that DuckDB refuses; the message is DuckDB's own."""


def is_full(error: BaseException) -> bool:
    """Whether the error is that of a full disk or quota: time alone does not mend it."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
