"""The device lock: one measuring process a device on a host, whoever started it.

``flock`` is dropped by the kernel with the process, however that dies. Beside the lock stands
``<lock>.owner``, which says who holds it; it may outlive its writer and is only ever a message. Waiting is
fair: a waiter first takes ``<lock>.next`` and keeps it until the lock is his, so that an owner who comes back
queues up behind him. Every user of the host may use the files: they are opened as they are and emptied, never
replaced, because a sticky folder lets nobody replace or re-create another user's file. Everybody may also
plant files there: a link, or anything but a plain file, is refused, since what it leads to would be emptied.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional

MOST_OWNER_BYTES = 65536


class PlantedError(OSError):
    """Something stands in the place of a lock file that would be damaged if it were used as one."""


def owner_of(lock: Path) -> Optional[Dict[str, Any]]:
    """What the last owner wrote of himself; None where there is nothing readable."""
    try:
        with open(_opened(_owner_file(lock), os.O_RDONLY), encoding="utf-8") as stream:
            owner = json.loads(stream.read(MOST_OWNER_BYTES))
    except (OSError, ValueError):
        return None
    return dict(owner) if isinstance(owner, dict) else None


def is_held(lock: Path) -> bool:
    """Whether a process holds the lock at this moment. Raises PlantedError where it is no plain file."""
    if not lock.exists():
        return False
    descriptor = _opened(lock, os.O_RDWR)
    try:
        return not _try(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def held(lock: Path, plan: str, waiting: Callable[[Optional[Dict[str, Any]]], None]) -> Iterator[int]:
    """Hold the device lock; yields its descriptor, which a child may inherit to measure under the same hold.

    ``plan`` says what it is held for. ``waiting`` is called once, with the owner, where another process has
    the lock. Raises PlantedError where a file of the lock is a link or no plain file.
    """
    queue, device = _open(_beside(lock, ".next")), _open(lock)
    try:
        if not (_try(queue) and _try(device)):
            waiting(owner_of(lock))
            fcntl.flock(queue, fcntl.LOCK_EX)
            fcntl.flock(device, fcntl.LOCK_EX)
        fcntl.flock(queue, fcntl.LOCK_UN)
        owner = {"pid": os.getpid(), "uid": os.getuid(), "since_ns": time.time_ns(), "plan": plan}
        _write_owner(lock, json.dumps(owner))
        try:
            yield device
        finally:
            _write_owner(lock, "")
    finally:
        os.close(queue)
        os.close(device)


def inherited(lock: Path, descriptor: int) -> None:
    """Check that ``descriptor`` came from a process that holds ``lock``. Raises ValueError."""
    try:
        same = os.path.samestat(os.fstat(descriptor), lock.stat())
    except OSError as error:
        raise ValueError(f"--lock-fd {descriptor}: {error.strerror}") from error
    if not same or not _try(descriptor):
        raise ValueError(f"--lock-fd {descriptor} does not hold {lock}")


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_owner(lock: Path, text: str) -> None:
    descriptor = _open(_owner_file(lock))
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """Open ``path``, made for every user of the host where it is not there yet."""
    while True:
        try:
            return _opened(path, os.O_RDWR)
        except FileNotFoundError:
            pass
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            continue
        os.fchmod(descriptor, 0o666)
        return descriptor


def _opened(path: Path, flags: int) -> int:
    """Open a plain file that has no other name. Raises PlantedError for anything else."""
    try:
        # Not blocking: a pipe would keep its reader waiting.
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise PlantedError(error.errno, "a link stands in the place of a lock", str(path)) from None
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise PlantedError(errno.ELOOP, "stands in the place of a lock and is not a plain file", str(path))
    return descriptor


def _owner_file(lock: Path) -> Path:
    return _beside(lock, ".owner")


def _beside(lock: Path, ending: str) -> Path:
    return lock.with_name(lock.name + ending)
