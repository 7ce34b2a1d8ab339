"""What /proc says of processes: who carries a mark, who listens on a port, with which environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

from tilewatch.tasks.measure.serving.keeper import descendants, name_of

LOOPBACK = "127.0.0.1"
_LISTENING = "0A"


def marked(variable: str, value: str) -> dict[int, str]:
    """Living processes whose environment holds ``variable=value``: pid to name. This process is left out."""
    wanted = f"{variable}={value}".encode()
    return {
        pid: name_of(pid)
        for pid in _pids()
        if pid != os.getpid() and wanted in _environ(pid) and _state(pid) not in ("Z", "X", "")
    }


def tree(pid: int) -> list[int]:
    """``pid`` and every living process below it."""
    return [pid, *descendants(pid)]


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty where it is gone or not ours to read."""
    pairs = (entry.decode("utf-8", "replace").partition("=") for entry in _environ(pid) if entry)
    return {name: value for name, _, value in pairs}


def listeners(port: int) -> set[int]:
    """Processes that listen on TCP ``port`` of this host; empty where nobody does."""
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    return {pid for pid in _pids() if inodes and inodes & set(_descriptors(pid))} if inodes else set()


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether a server could listen on the loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _environ(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in (row.split() for row in rows):
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _descriptors(pid: int) -> Iterator[str]:
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                yield str(entry.readlink())
            except OSError:
                continue
    except OSError:
        return
