"""A lease: the uninterrupted hold of a device for one sweep, handed down to every measuring process.

The lock itself is the measuring program's (``flock``: any death frees it). A sweep takes it once and passes
the open descriptor on, so that no one else measures between two processes of the same sweep.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewatch.infra import spool
from tilewatch.infra.counts import note_lease
from tilewatch.infra.errors import ServiceError
from tilewatch.infra.fleet_names import dies_of
from tilewatch.infra.logs import event
from tilewatch.infra.progress import current
from tilewatch.infra.settings import Settings
from tilewatch.tasks.measure.program import locks
from tilewatch.tasks.plan.run_document import RunDocument
from tilewatch.tasks.simulate.sweep import lease_of


@dataclass(frozen=True)
class Lease:
    """One hold of the device lock; ``descriptor`` is the locked file, inherited by the measuring process.

    −1 where nothing is locked.
    """

    lease_id: str
    path: Path
    descriptor: int


@contextmanager
def leased(settings: Settings, document: RunDocument) -> Iterator[Lease]:
    """Hold the lock of the run's device; waits its turn, and says who holds it meanwhile.

    A simulated run needs no device: its lease is that of its seed, and nothing is locked. Raises ServiceError
    where somebody planted a link in the place of the lock.
    """
    if document.agent == "simulated":
        yield Lease(lease_of(document.seed), settings.lock_folder, -1)
        return
    path = settings.lock_folder / f"{_lock_name(document, device_number(settings))}.lock"
    begun_ns = time.monotonic_ns()
    waited: list[dict[str, Any] | None] = []

    def waiting(owner: dict[str, Any] | None) -> None:
        who = f"process {owner['pid']} (plan {owner['plan']})" if owner else "another process"
        waited.append(owner)
        current().note(f"waiting for the device: {who} holds {path}")

    try:
        with locks.held(path, document.run_id, waiting) as descriptor:
            lease = Lease(spool.new_run_id(), path, descriptor)
            waited_ns = time.monotonic_ns() - begun_ns if waited else 0
            note_lease(settings.spool_folder / document.run_id, lease.lease_id, waited_ns)
            event("leased", lease_id=lease.lease_id, lock=path, waited_ns=waited_ns)
            yield lease
    except locks.PlantedError as error:
        raise ServiceError(
            f"the device cannot be locked: {error.filename}: {error.strerror}",
            "Remove it, and look who may write to the lock folder: tilewatch doctor",
        ) from error


def device_number(settings: Settings) -> int:
    """Number of the measured device on this host: the setting, else the first that CANN may see, else 0."""
    first = os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "").split(",")[0].strip()
    seen = int(first) if first.isdigit() else 0
    return seen if settings.device is None else settings.device


def _lock_name(document: RunDocument, device: int) -> str:
    """One lock a card: its dies share power and heat. The CPU of a host is one device, whatever N."""
    # Of an NPU's class the name alone: its clock comes from a tool that may once not answer.
    named = document.device_class if document.agent == "cpu" else document.device_class.split(",")[0]
    name = re.sub(r"[^a-z0-9]+", "-", f"{document.agent}-{named}".lower()).strip("-")
    return name if document.agent == "cpu" else f"{name}-card{device // dies_of(document.device_class)}"
