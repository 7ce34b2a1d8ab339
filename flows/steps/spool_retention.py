"""The spool after archiving: which run folders of this host may go, since the archive holds them whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewatch.flows.steps.parts import PARTS, unclaimed
from tilewatch.flows.steps.retention import DAY_S
from tilewatch.infra import spool
from tilewatch.infra.archive import Archive
from tilewatch.infra.raw_zone import claims, document_key
from tilewatch.infra.settings import Settings
from tilewatch.infra.spool import RunFolder
from tilewatch.tasks.collect.archive import capture_prefix
from tilewatch.tasks.collect.manifest import NAME, CaptureError, read_manifest

_GOING = ".gone-"
_LEFTOVERS = (_GOING, ".validate-", ".rebuild-", ".ingest-")


@dataclass(frozen=True)
class Spooled:
    """One run folder of the spool: its size, and why it stays where it may not go."""

    path: Path
    run_id: str
    age_days: float
    size_bytes: int
    stays_because: str | None


def spooled(settings: Settings, archive: Archive, older_than_days: float, now_s: float) -> Iterator[Spooled]:
    """Every run folder of this host's spool, oldest first; also those of its shares of larger runs.

    One stays while it is young, while its run can be resumed, and while the raw zone lacks a capture of it.
    Of a share it is enough that every block of the run is claimed: what it has besides is never read.
    """
    for place in _places(settings):
        at_place = settings.model_copy(update={"spool": place})
        for run_id in spool.runs(at_place):
            folder = spool.find(at_place, run_id)
            age_days = (now_s - (folder.path / "run.json").stat().st_mtime) / DAY_S
            size = sum(path.stat().st_size for path in folder.path.rglob("*") if path.is_file())
            young = f"younger than {older_than_days:g} days" if age_days < older_than_days else None
            needed = _needed_here if place == settings.spool_folder else _needed_of_share
            why = young or _unknown(archive, folder) or needed(archive, folder)
            yield Spooled(folder.path, run_id, age_days, size, why)


def clear(found: Spooled) -> None:
    """Delete the run folder. Raises ValueError for one that stays.

    One whose deletion was cut short is no run any more; ``clear_leftovers`` deletes the rest.
    """
    if found.stays_because is not None:
        raise ValueError(f"{found.path} stays: {found.stays_because}")
    # Renamed first: half a folder would look like a run that can be resumed.
    going = found.path.with_name(f"{_GOING}{found.run_id}")
    found.path.rename(going)
    shutil.rmtree(going)


def clear_leftovers(settings: Settings, now_s: float) -> int:
    """Delete working folders that killed processes left in the spool over a day ago; returns how many."""
    left = [path for place in _places(settings) for prefix in _LEFTOVERS for path in place.glob(f"{prefix}*")]
    old = [path for path in left if now_s - path.stat().st_mtime >= DAY_S]
    for path in old:
        shutil.rmtree(path)
    return len(old)


def _places(settings: Settings) -> list[Path]:
    """Where run folders lie: the spool itself, then the shares of every device of this host."""
    own = settings.spool_folder
    return [own, *sorted((own / PARTS).glob("*"))]


def _unknown(archive: Archive, folder: RunFolder) -> str | None:
    known = archive.objects.exists(document_key(folder.document.run_id))
    return None if known else "its run is not in the archive"


def _needed_of_share(archive: Archive, folder: RunFolder) -> str | None:
    left = len(unclaimed(archive, folder.document))
    return f"{left} blocks of its run are claimed by no device yet" if left else None


def _needed_here(archive: Archive, folder: RunFolder) -> str | None:
    document = folder.document
    if not claims(archive, document.run_id):
        missing = sum(1 for _ in folder.remaining()) + sum(1 for _ in folder.remaining_launches())
        if missing:
            return f"{missing} processes are not measured: it can be resumed"
    elif left := _needed_of_share(archive, folder):
        return left
    captures = [path for letter in document.experiments for path in folder.captures(letter)]
    try:
        prefixes = [capture_prefix(path, read_manifest(path)) for path in captures]
    except CaptureError as error:
        return str(error)
    lacking = sum(not archive.objects.exists(f"{prefix}/{NAME}") for prefix in prefixes)
    return f"{lacking} of {len(prefixes)} captures are not in the raw zone" if lacking else None
