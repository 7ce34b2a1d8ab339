"""Measure what a run still lacks: one fresh process after the other, in the planned order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewatch.infra.builds import BuildChangedError
from tilewatch.infra.lease import Lease, device_number
from tilewatch.infra.logs import event
from tilewatch.infra.progress import current
from tilewatch.infra.settings import Settings
from tilewatch.infra.simulated_device import AGENT as SIMULATED
from tilewatch.infra.simulated_device import simulated_outcome
from tilewatch.infra.spool import RunFolder
from tilewatch.tasks.collect.manifest import read_manifest
from tilewatch.tasks.measure.environment import of_facts
from tilewatch.tasks.measure.run import Outcome, Progress, measure_process
from tilewatch.tasks.plan.plan import Plan, Process
from tilewatch.tasks.plan.run_document import RunDocument

START_UP_LIMIT_S = 120.0
POINT_LIMIT_FACTOR = 6
POINT_LIMIT_FLOOR_S = 5.0


@dataclass(frozen=True)
class Batch:
    """The processes of one ABBA block of one experiment: ten seconds of work or more."""

    experiment: str
    block: int


def batches(folder: RunFolder) -> Iterator[Batch]:
    """Batches of the run that lack at least one capture, in order."""
    seen = set()
    for letter, process in folder.remaining():
        if (letter, process.block) not in seen:
            seen.add((letter, process.block))
            yield Batch(letter, process.block)


def batches_together(folders: Sequence[RunFolder]) -> Iterator[tuple[Batch, RunFolder]]:
    """Batches of several runs of the same plan as one ABBA sweep: every build is a lane beside the arms.

    In even blocks the first run comes first, in odd ones the last; each has its own arms in that order too.
    """
    todo = [set(batches(folder)) for folder in folders]
    for letter, plan in folders[0].document.plans.items():
        for block in sorted({process.block for process in plan.processes}):
            batch = Batch(letter, block)
            lanes = list(zip(folders, todo, strict=True))
            for folder, left in lanes if block % 2 == 0 else reversed(lanes):
                if batch in left:
                    yield batch, folder


def measure_batch(settings: Settings, folder: RunFolder, batch: Batch, lease: Lease) -> list[Outcome]:
    """Run the processes of ``batch`` that have no capture yet; after a failed one the next begins.

    Raises BuildChangedError where a process finds another build than the run's: no later one could count.
    """
    plan = folder.document.plans[batch.experiment]
    outcomes = []
    for process in plan.processes:
        if process.block == batch.block and not folder.is_complete(batch.experiment, process):
            outcomes.append(_measure(settings, folder, batch.experiment, plan, process, lease))
            _log(outcomes[-1], batch.experiment, process, lease)
            if outcomes[-1].status == "build_changed":
                raise BuildChangedError(
                    f"{batch.experiment} {process.name}: {outcomes[-1].reason}",
                    "The run is aborted; what was measured before is kept and was not judged",
                )
    return outcomes


def _log(outcome: Outcome, experiment: str, process: Process, lease: Lease) -> None:
    capture_id = read_manifest(outcome.capture_dir).capture_id if outcome.has_manifest else None
    event(
        "measured", experiment=experiment, process=process.name, status=outcome.status,
        capture_id=capture_id, lease_id=lease.lease_id, reason=outcome.reason,
    )  # fmt: skip


def _measure(
    settings: Settings, folder: RunFolder, experiment: str, plan: Plan, process: Process, lease: Lease
) -> Outcome:
    document = folder.document
    if document.agent == SIMULATED:
        return simulated_outcome(folder, experiment, process, device_number(settings))
    facts = {
        "run_id": document.run_id,
        "lease_id": lease.lease_id,
        "build": {"label": document.build, "build_id": document.build_id},
        "method": dict(document.method),
        "method_hash": document.method_hash,
        "lock_path": str(lease.path),
        **_die(document, settings),
    }
    told = 0.0

    def on_progress(progress: Progress) -> None:
        nonlocal told
        share = 0.98 * progress.done / max(progress.total, 1)
        current().advance(f"{experiment} {process.name}", share - told)
        told = share

    environment = of_facts(document.environment)
    variables = environment.variables() if environment else dict(os.environ)
    if document.agent == "npu" and settings.device is not None:
        variables["ASCEND_RT_VISIBLE_DEVICES"] = str(settings.device)
    outcome = measure_process(
        plan.document(process, facts),
        folder.capture_folder(experiment, process),
        python=(environment and environment.python) or str(settings.measure_python),
        timeout_s=_limit_s(plan, process),
        lock_fd=lease.descriptor,
        on_progress=on_progress,
        variables=variables,
    )
    current().advance(f"{experiment} {process.name}", 1.0 - told)
    if outcome.status != "complete":
        current().note(f"{experiment} {process.name}: {outcome.status}: {outcome.reason}")
    return outcome


def _die(document: RunDocument, settings: Settings) -> dict[str, int]:
    """Which device of the host it is: dies are compared with themselves alone. A CPU is one device.

    It is named however the run was started: what a prompt measures and what an agent does are comparable.
    """
    return {} if document.agent == "cpu" else {"die": device_number(settings)}


def _limit_s(plan: Plan, process: Process) -> float:
    point_s = max(POINT_LIMIT_FACTOR * plan.amount["max_point_ns"] / 1e9, POINT_LIMIT_FLOOR_S)
    return START_UP_LIMIT_S + point_s * len(process.points)
