"""One run over several devices: its ABBA blocks dealt out, each measured on one device and claimed once.

A block holds every arm and every point once, so what is compared inside it shares a device. The device that
has archived a whole block first claims it with a create-only object; captures of a block that another device
claimed stay in the raw zone and are never read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.flows.experiments import experiments
from tilewatch.flows.steps.measure import Batch, measure_batch
from tilewatch.infra import spool
from tilewatch.infra.archive import Archive
from tilewatch.infra.builds import BuildChangedError, present_build
from tilewatch.infra.errors import ObjectExistsError
from tilewatch.infra.host_limits import NotAllowedHereError, refuse_foreign_environment
from tilewatch.infra.lease import leased
from tilewatch.infra.logs import event
from tilewatch.infra.progress import current
from tilewatch.infra.raw_zone import archived_document, claims, document_key, run_folder_key
from tilewatch.infra.settings import Settings
from tilewatch.infra.simulated_device import AGENT as SIMULATED
from tilewatch.infra.spool import RunFolder
from tilewatch.tasks.collect.archive import archive_capture
from tilewatch.tasks.plan.run_document import RunDocument

PARTS = "parts"
"""Folder in the spool with a device's shares of runs that other devices measure too."""


class PartError(TilewatchError):
    """Blocks that a device could not measure whole; another device may."""


def blocks(document: RunDocument) -> list[Batch]:
    """Every block of the run, in measuring order."""
    planned = ((letter, p.block) for letter, plan in document.plans.items() for p in plan.processes)
    return [Batch(letter, block) for letter, block in dict.fromkeys(planned)]


def dealt(todo: Sequence[Batch], queues: Sequence[str]) -> dict[str, list[Batch]]:
    """The blocks by device: block n to device n modulo their number, so each has its share of every arm."""
    return {
        queue: [batch for batch in todo if batch.block % len(queues) == number]
        for number, queue in enumerate(queues)
    }


def unclaimed(archive: Archive, document: RunDocument) -> list[Batch]:
    """Blocks that no device has finished yet, in measuring order."""
    done = claims(archive, document.run_id)
    return [batch for batch in blocks(document) if (batch.experiment, batch.block) not in done]


def publish_document(archive: Archive, document: RunDocument) -> None:
    """Put the run's document where every device finds it."""
    archive.objects.put_new(document_key(document.run_id), document.to_json())


def measure_part(
    settings: Settings, archive: Archive, run_id: str, wanted: Iterable[Batch], queue: str, build: str | None,
    soc: str,
) -> int:  # fmt: skip
    """Measure, archive and claim blocks on this device; returns how many it claimed.

    What was measured before a death is kept. Raises BuildChangedError where this device has another build
    than the run, NotAllowedHereError where the run wants an environment or variables that this host does not
    know, PartError where a block did not come out whole: it stays unclaimed.
    """
    document = archived_document(archive, run_id)
    refuse_foreign_environment(settings, document.environment)
    _refuse_foreign_variables(settings, document)
    if document.agent == SIMULATED:
        _refuse_another(settings, document, queue, build, soc)
    own = settings.model_copy(update={"spool": settings.spool_folder / PARTS / queue})
    own.prepare()
    folder = spool.create(own, document)
    claimed, broken = 0, []
    wanted = list(wanted)
    of_wanted = ((letter, p.block) for letter, p in folder.remaining())
    current().stage("measure", sum(Batch(*one) in wanted for one in of_wanted))
    with leased(own, document) as lease:
        for batch in wanted:
            if batch not in unclaimed(archive, document):
                continue
            measure_batch(own, folder, batch, lease)
            if _whole(folder, batch):
                claimed += _claim(archive, folder, batch, queue)
            else:
                broken.append(f"{batch.experiment} block {batch.block}")
    if broken:
        raise PartError(f"{queue} could not measure {', '.join(broken)} whole")
    return claimed


def _refuse_foreign_variables(settings: Settings, document: RunDocument) -> None:
    """Raise NotAllowedHereError where a process of a document from the store wants variables of its own."""
    known = experiments(settings)
    for letter, plan in document.plans.items():
        own = [arm.env for arm in known[letter].arms] if letter in known else []
        for process in plan.processes:
            if process.env and dict(process.env) not in own:
                raise NotAllowedHereError(
                    f"run {document.run_id}: arm {process.arm} of experiment {letter} sets "
                    f"{', '.join(sorted(process.env))}, which no experiment of this host does",
                    "Give every host of the sweep the same experiment files",
                )


def _refuse_another(
    settings: Settings, document: RunDocument, queue: str, build: str | None, soc: str
) -> None:
    """Raise BuildChangedError where the simulated build is another one; elsewhere the process looks."""
    found = present_build(settings, document.agent, label=build or document.build, soc=soc)
    if found.build_id != document.build_id:
        raise BuildChangedError(
            f"{queue} has build {found.build_id} and run {document.run_id} is of {document.build_id}",
            "Install the same build on every device of the sweep",
        )


def _whole(folder: RunFolder, batch: Batch) -> bool:
    return all((letter, p.block) != (batch.experiment, batch.block) for letter, p in folder.remaining())


def _claim(archive: Archive, folder: RunFolder, batch: Batch, queue: str) -> bool:
    """Archive the captures of a block and claim it; False where another device was first."""
    prefixes = [
        archive_capture(folder.capture_folder(batch.experiment, process), archive.objects).prefix
        for process in folder.document.plans[batch.experiment].processes
        if process.block == batch.block
    ]
    key = f"{run_folder_key(folder.document.run_id)}{batch.experiment}-{batch.block:04d}.json"
    body = {"experiment": batch.experiment, "block": batch.block, "queue": queue, "prefixes": prefixes}
    try:
        archive.objects.put_new(key, json.dumps(body, sort_keys=True).encode())
    except ObjectExistsError:
        current().note(f"{batch.experiment} block {batch.block} was finished by another device first")
        return False
    event("claimed", experiment=batch.experiment, block=batch.block, queue=queue)
    return True
