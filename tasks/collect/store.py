"""What this stage needs of an object store; ``tilewatch.infra.objects`` has one, a test may bring another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Protocol


class ObjectInfo(Protocol):
    """One object of a listing."""

    @property
    def key(self) -> str:
        """Key within the bucket."""

    @property
    def size_bytes(self) -> int:
        """Size of the content."""


class ObjectStore(Protocol):
    """Objects by key. Content is created once and never changes."""

    def put_new(self, key: str, body: bytes | Path) -> bool:
        """Create ``key``; False where the same content was there, an error where another one was."""

    def get(self, key: str) -> bytes:
        """Content of ``key``."""

    def open_read(self, key: str) -> AbstractContextManager[IO[bytes]]:
        """Stream of the content of ``key``."""

    def exists(self, key: str) -> bool:
        """Whether there is an object under ``key``."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects whose key starts with ``prefix``, sorted by key."""
