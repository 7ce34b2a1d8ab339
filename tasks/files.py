"""Files that are there whole or not at all: what a killed writer leaves is a draft that nobody reads."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes, *, durable: bool = False, mode: int = 0o666) -> None:
    """Write ``path`` in one step; a reader sees the old content or the new, never a part. Text is UTF-8.

    ``durable`` waits until the content is on the disk; ``mode`` (less the umask) holds from the draft's first
    instant. The draft lies beside the file, so that both are on one file system. The measuring program has
    its own, which imports nothing of ours.
    """
    draft = path.with_name(f".{path.name}.part")
    data = content.encode() if isinstance(content, str) else content
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        if durable:
            stream.flush()
            os.fsync(stream.fileno())
    draft.replace(path)
