"""Free loopback ports: the ones of last time where they are still free, others where they are not."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from contextlib import ExitStack

from tilewatch.infra.errors import ServiceError

LOOPBACK = "127.0.0.1"
# Below Linux's range for outgoing connections, which would take a port while its owner is stopped.
_FIRST, _LAST = 15_000, 32_000


def free_ports(count: int, preferred: Sequence[int] = ()) -> list[int]:
    """``count`` ports that are free now: ``preferred`` where all of them are.

    Raises ServiceError if the host refuses loopback ports altogether.
    """
    if len(preferred) == count and _bindable(preferred):
        return list(preferred)
    found: list[int] = []
    for candidate in random.sample(range(_FIRST, _LAST), 50 * count):
        if _bindable([candidate]):
            found.append(candidate)
        if len(found) == count:
            return found
    raise ServiceError(
        f"the host refuses ports on {LOOPBACK}: {len(found)} of {count} needed could be opened",
        "Allow listening on loopback, or set s3_endpoint to a store that runs elsewhere",
    )


def _bindable(ports: Sequence[int]) -> bool:
    with ExitStack() as stack:
        for port in ports:
            try:
                listener = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
                # As the server itself will do; without it a port in TIME_WAIT counts as taken.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((LOOPBACK, port))
                listener.listen(1)
            except OSError:
                return False
    return True
