"""One way to the store for every command: the external one, or the embedded one for as long as it is used."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tilewatch.infra.objects import Endpoint, ObjectStore
from tilewatch.infra.objects.endpoint import external
from tilewatch.infra.services import seaweed
from tilewatch.infra.settings import Settings


@contextmanager
def store(settings: Settings) -> Iterator[Endpoint]:
    """The store's endpoint, reachable while the block runs.

    An embedded store that does not run is started, and stopped by the last block that leaves it; one that
    ``tilewatch up`` started stays. Raises StoreError or ServiceError within about ten seconds where there
    is not a usable store.
    """
    if settings.s3_endpoint is not None:
        endpoint = external(settings)
        ObjectStore(endpoint).check()
        yield endpoint
        return
    files = seaweed.files_of(settings)
    files.create_folders()
    users = files.open_lock("users")
    try:
        with files.starting():
            endpoint = seaweed.running(settings, files, keep=False)
            fcntl.flock(users, fcntl.LOCK_SH)
        yield endpoint
    finally:
        with files.starting():
            fcntl.flock(users, fcntl.LOCK_UN)
            if not files.state().keep and _nobody_uses(users):
                seaweed.halt(files)
        os.close(users)


def _nobody_uses(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
