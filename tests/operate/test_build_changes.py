"""A run whose build changes under it stops there; what it had measured is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tilewatch.flows.experiments import experiments
from tilewatch.flows.steps.measure import batches, measure_batch
from tilewatch.flows.steps.prepare import prepare
from tilewatch.flows.steps.requests import SweepRequest
from tilewatch.infra import spool
from tilewatch.infra.archive import Archive
from tilewatch.infra.builds import BuildChangedError
from tilewatch.infra.lease import leased
from tilewatch.infra.objects import ObjectStore
from tilewatch.infra.settings import Settings
from tilewatch.infra.tables import TableStore


def test_a_run_whose_build_changes_midway_aborts_and_keeps_what_it_has(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path / "home", lock_folder=tmp_path / "locks")
    archive = Archive(object_store.endpoint, object_store, TableStore(object_store.endpoint))
    asked = SweepRequest(experiments=("A",), preset="smoke", arm="tuple_input", processes=2, seed=7)
    folder = prepare(settings, archive, asked, experiments(settings))
    first, second = batches(folder)
    with leased(settings, folder.document) as lease:
        measure_batch(settings, folder, first, lease)
        kept = folder.captures("A")
        # As after an installation: the interpreter now finds another build than the run's document says.
        changed = replace(folder, document=replace(folder.document, build_id="0" * 16))
        with pytest.raises(BuildChangedError, match="build changed: the plan is for 0000000000000000"):
            measure_batch(settings, changed, second, lease)
    assert kept and set(kept) <= set(spool.find(settings, folder.document.run_id).captures("A"))
