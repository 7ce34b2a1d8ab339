"""A run that several devices measure in blocks comes to what one device measures; a block counts once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tilewatch.flows.experiments import experiments
from tilewatch.flows.steps.measure import batches, measure_batch
from tilewatch.flows.steps.parts import blocks, dealt, measure_part, publish_document, unclaimed
from tilewatch.flows.steps.prepare import prepare
from tilewatch.flows.steps.requests import SweepRequest
from tilewatch.infra import spool
from tilewatch.infra.archive import Archive
from tilewatch.infra.builds import BuildChangedError
from tilewatch.infra.lease import leased
from tilewatch.infra.objects import ObjectStore
from tilewatch.infra.raw_zone import archive_run, captures_of, claims
from tilewatch.infra.settings import Settings
from tilewatch.infra.spool import RunFolder
from tilewatch.infra.tables import TableStore
from tilewatch.tasks.collect.fetch import fetch_capture
from tilewatch.tasks.derive.operators import derive

OLD, NEW = "sim-cann8.5.0", "sim-cann9.0.0"
VALUES = ("arm", "role", "process_index", "point_id", "sample", "duration_ns")


@pytest.fixture
def archive(object_store: ObjectStore) -> Archive:
    return Archive(object_store.endpoint, object_store, TableStore(object_store.endpoint))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", lock_folder=tmp_path / "locks")


def started(settings: Settings, archive: Archive) -> RunFolder:
    """A new simulated run, the same one each time but for its id."""
    asked = SweepRequest(
        experiments=("B",), preset="smoke", agent="simulated", build=OLD, seed=7, processes=5
    )
    return prepare(settings, archive, asked, experiments(settings))


def shared(settings: Settings, archive: Archive, folder: RunFolder, queues: Sequence[str]) -> None:
    """Measure the run on as many devices as there are queues."""
    publish_document(archive, folder.document)
    for die, (queue, todo) in enumerate(dealt(blocks(folder.document), queues).items()):
        own = settings.model_copy(update={"device": die})
        measure_part(own, archive, folder.document.run_id, todo, queue, OLD, "Ascend910_9391")


def tables(archive: Archive, folder: RunFolder, work: Path) -> dict[str, pa.Table]:
    """The derived tables of the run, from raw alone."""
    captures: dict[str, list[tuple[Path, str]]] = {}
    for letter in folder.document.plans:
        captures[letter] = []
        for prefix in captures_of(archive, folder.document, letter):
            fetch_capture(archive.objects, prefix, work / Path(prefix).name)
            captures[letter].append((work / Path(prefix).name, prefix))
    return derive(folder.document, captures)


def values(found: dict[str, pa.Table]) -> Counter[tuple[Any, ...]]:
    """Every sample with the process that it belongs to."""
    return Counter(zip(*(found["samples"][name].to_pylist() for name in VALUES), strict=True))


def test_two_devices_come_to_what_one_device_comes_to(
    settings: Settings, archive: Archive, tmp_path: Path
) -> None:
    alone, both = started(settings, archive), started(settings, archive)
    with leased(settings, alone.document) as lease:
        for batch in batches(alone):
            measure_batch(settings, alone, batch, lease)
    archive_run(archive, alone)
    shared(settings, archive, both, ["h-0", "h-1"])
    one, two = tables(archive, alone, tmp_path / "one"), tables(archive, both, tmp_path / "two")
    assert values(one) == values(two) and sum(values(one).values()) > 100
    assert [len(set(t["captures"]["device"].to_pylist())) for t in (one, two)] == [1, 2]
    for name in ("points", "ledger", "cliffs"):
        assert one[name].num_rows == two[name].num_rows
    per_block = two["captures"].group_by("block").aggregate([("device", "count_distinct")])
    assert set(per_block["device_count_distinct"].to_pylist()) == {1}, "a block is measured on one die"


def test_a_block_that_two_devices_measured_counts_once(
    settings: Settings, archive: Archive, tmp_path: Path
) -> None:
    folder = started(settings, archive)
    publish_document(archive, folder.document)
    todo = blocks(folder.document)
    straggler = settings.model_copy(update={"device": 1, "spool": tmp_path / "elsewhere"})
    own = straggler.model_copy(update={"spool": tmp_path / "elsewhere" / "parts" / "h-1"})
    own.prepare()
    slow = spool.create(own, folder.document)
    with leased(own, folder.document) as lease:
        measure_batch(own, slow, todo[0], lease)
    shared(settings, archive, folder, ["h-0"])
    before = claims(archive, folder.document.run_id)
    assert measure_part(straggler, archive, folder.document.run_id, todo, "h-1", OLD, "Ascend910_9391") == 0
    assert claims(archive, folder.document.run_id) == before and not unclaimed(archive, folder.document)
    counted = Counter(
        (c["arm"], c["role"], c["kind"], c["process_index"])
        for c in tables(archive, folder, tmp_path / "all")["captures"].to_pylist()
    )
    assert set(counted.values()) == {1}


def test_a_device_with_another_build_measures_nothing(settings: Settings, archive: Archive) -> None:
    folder = started(settings, archive)
    publish_document(archive, folder.document)
    with pytest.raises(BuildChangedError, match=re.escape("h-1 has build")):
        measure_part(
            settings, archive, folder.document.run_id, blocks(folder.document), "h-1", NEW, "Ascend910_9391"
        )
    assert claims(archive, folder.document.run_id) == {}
