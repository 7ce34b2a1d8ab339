"""A lease: the uninterrupted hold of a device for one sweep, handed down to every measuring process.

The lock itself is the measuring program's (``flock``: any death frees it). A sweep takes it once and passes
the open descriptor on, so that no one else measures between two processes of the same sweep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra import spool
from infra.progress import current
from infra.settings import Settings
from tasks.measure.program import locks
from tasks.plan.run_document import RunDocument
from tasks.simulate.sweep import lease_of


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

    A simulated run needs no device: its lease is that of its seed, and nothing is locked.
    """
    if document.agent == "simulated":
        yield Lease(lease_of(document.seed), settings.lock_folder, -1)
        return
    name = re.sub(r"[^a-z0-9]+", "-", f"{document.agent}-{document.device_class}".lower()).strip("-")
    path = settings.lock_folder / f"{name}.lock"

    def waiting(owner: dict[str, Any] | None) -> None:
        who = f"process {owner['pid']} (plan {owner['plan']})" if owner else "another process"
        current().note(f"waiting for the device: {who} holds {path}")

    with locks.held(path, document.run_id, waiting) as descriptor:
        yield Lease(spool.new_run_id(), path, descriptor)
