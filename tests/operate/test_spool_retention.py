"""A run folder leaves the spool of a host only when the archive holds the run whole."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.operate.test_parts import OLD, archive, settings, started
from tilewatch.flows.steps.measure import batches, measure_batch
from tilewatch.flows.steps.parts import PARTS, blocks, measure_part, publish_document
from tilewatch.flows.steps.retention import DAY_S
from tilewatch.flows.steps.spool_retention import Spooled, clear, clear_leftovers, spooled
from tilewatch.infra import spool
from tilewatch.infra.archive import Archive
from tilewatch.infra.lease import leased
from tilewatch.infra.raw_zone import archive_run, document_key
from tilewatch.infra.settings import Settings
from tilewatch.infra.spool import RunFolder

__all__ = ["archive", "settings"]


def measured(settings: Settings, archive: Archive) -> RunFolder:
    """A simulated run with all its captures in the spool and none in the archive."""
    folder = started(settings, archive)
    with leased(settings, folder.document) as lease:
        for batch in batches(folder):
            measure_batch(settings, folder, batch, lease)
    return folder


def reasons(settings: Settings, archive: Archive, older_than_days: float = 0) -> list[str | None]:
    return [one.stays_because for one in found(settings, archive, older_than_days)]


def found(settings: Settings, archive: Archive, older_than_days: float = 0) -> list[Spooled]:
    return list(spooled(settings, archive, older_than_days, time.time() + 1))


def test_a_run_stays_until_it_is_measured_whole_and_archived(settings: Settings, archive: Archive) -> None:
    folder = measured(settings, archive)
    assert reasons(settings, archive) == ["its run is not in the archive"]
    archive.objects.put_new(document_key(folder.document.run_id), folder.document.to_json())
    captures = len(folder.captures("B"))
    assert reasons(settings, archive) == [f"{captures} of {captures} captures are not in the raw zone"]
    archive_run(archive, folder)
    assert reasons(settings, archive) == [None]
    assert reasons(settings, archive, 1) == ["younger than 1 days"]


def test_a_run_that_can_be_resumed_stays(settings: Settings, archive: Archive) -> None:
    folder = measured(settings, archive)
    archive_run(archive, folder)
    (folder.captures("B")[0] / "manifest.json").unlink()
    assert reasons(settings, archive) == ["1 processes are not measured: it can be resumed"]


def test_what_may_go_goes_and_is_no_run_any_more(settings: Settings, archive: Archive) -> None:
    folder = measured(settings, archive)
    (kept,) = found(settings, archive)
    with pytest.raises(ValueError, match="stays: its run is not in the archive"):
        clear(kept)
    archive_run(archive, folder)
    (going,) = found(settings, archive)
    assert going.size_bytes > 10_000
    clear(going)
    assert spool.runs(settings) == [] and not any(settings.spool_folder.glob(".*"))
    with pytest.raises(spool.SpoolError, match="is not in the spool of this host"):
        spool.find(settings, folder.document.run_id)


def test_a_share_may_go_when_every_block_of_its_run_is_claimed(settings: Settings, archive: Archive) -> None:
    folder = started(settings, archive)
    publish_document(archive, folder.document)
    todo = blocks(folder.document)
    run_id = folder.document.run_id
    measure_part(settings, archive, run_id, todo[:1], "h-0", OLD, "Ascend910_9391")
    left = f"{len(todo) - 1} blocks of its run are claimed by no device yet"
    assert reasons(settings, archive) == [left, left]
    measure_part(settings, archive, run_id, todo, "h-0", OLD, "Ascend910_9391")
    shares = {one.path.parent.name: one for one in found(settings, archive)}
    assert {name: one.stays_because for name, one in shares.items()} == {"spool": None, "h-0": None}
    clear(shares["h-0"])
    assert [one.path.parent.name for one in found(settings, archive)] == ["spool"]


def test_working_folders_of_killed_processes_go_after_a_day(settings: Settings, tmp_path: Path) -> None:
    place = settings.spool_folder / PARTS / "h-0"
    old, new = place / ".gone-x", settings.spool_folder / ".validate-y"
    for path in (old, new):
        path.mkdir(parents=True)
        (path / "capture.json").write_text("{}")
    os.utime(old, (time.time() - 2 * DAY_S,) * 2)
    assert clear_leftovers(settings, time.time()) == 1
    assert new.is_dir() and not old.exists()
