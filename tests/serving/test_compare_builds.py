"""`compare` of two builds that served: every arm is judged, stored, and shown on a page of both."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.analyse import serving_case as case
from tilewatch.data_contracts import from_rows
from tilewatch.flows.steps.judge_again import judge_again, resting_on
from tilewatch.flows.steps.published import needed, publications
from tilewatch.flows.steps.retention import judged
from tilewatch.flows.steps.serving_compare import compare_serving_archived
from tilewatch.infra.archive import Archive
from tilewatch.infra.objects import ObjectStore
from tilewatch.infra.settings import Settings
from tilewatch.infra.tables import TableStore
from tilewatch.tasks.analyse.comparison import serving_compare

TPOT_MS = [10.00, 10.02, 9.98, 10.01, 9.99]
RUN: dict[str, Any] = {
    "experiment": "E", "agent": "cpu", "evidence": "measured", "status": "complete", "device_class": "CPU",
}  # fmt: skip


@pytest.fixture
def archive(object_store: ObjectStore) -> Archive:
    return Archive(object_store.endpoint, object_store, TableStore(object_store.endpoint))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", lock_folder=tmp_path / "locks")


def serve(archive: Archive, build: str, run_id: str, lease: str, factor: float) -> None:
    """Archive one run of two arms of ``build``."""
    own = {"build": build, "run_id": run_id, "lease_id": lease, "device_class": "CPU"}
    values = [value * factor for value in TPOT_MS]
    run = case.arm_run({"w8a8_nz": values, "bf16": values}, {"w8a8_nz": own, "bf16": own})
    # Two runs of one build have launches of the same name.
    renamed = {
        name: _of_run(getattr(run, name), run_id) for name in ("launches", "requests", "serving_metrics")
    }
    row = case.neutral("runs", {**RUN, "run_id": run_id, "build": build, "build_id": f"id-{build}",
                                "build_components": [("cann", build)]})  # fmt: skip
    archive.tables.write_run({**renamed, "runs": from_rows("runs", [row])})


def _of_run(table: pa.Table, run_id: str) -> pa.Table:
    index = table.column_names.index("capture_id")
    ids = pa.array([f"{run_id}-{capture}" for capture in table["capture_id"].to_pylist()])
    return table.set_column(index, table.schema.field(index), ids)


def test_every_arm_of_two_builds_is_judged_against_the_spread_of_leases(
    settings: Settings, archive: Archive
) -> None:
    settings.prepare()
    for number, factor in enumerate((1.0, 1.004, 0.997, 1.002)):
        serve(archive, "cann-8", f"run-0{number}", f"lease-{number}", factor)
    serve(archive, "cann-9", "run-10", "lease-10", 1.2)
    found = compare_serving_archived(settings, archive, "cann-8", "cann-9")
    assert found is not None and found.only
    rows = {(r["candidate_arm"], r["metric"]): r for r in found.rows.to_pylist()}
    assert {row["verdict"] for row in rows.values()} == {"SLOWER"} and len(rows) == 8
    tpot = rows["w8a8_nz", "tpot_ns"]
    assert tpot["floor_reason"] == "3 × A/A between leases" and tpot["changed_components"] == [
        "cann: cann-8 -> cann-9"
    ]
    assert found.sentence.startswith("cann-9 against cann-8: ")
    page = found.report.read_text(encoding="utf-8")
    assert found.sentence.split(" (")[0] in page and "w8a8_nz · cann-9" in page
    assert archive.tables.scan("serving_comparisons", [("run_id", "==", "run-10")]).num_rows == 8


SERVED = "comparisons/cann-8/cann-9/serving"


def two_builds(archive: Archive) -> None:
    for number, factor in enumerate((1.0, 1.004, 0.997, 1.002)):
        serve(archive, "cann-8", f"run-0{number}", f"lease-{number}", factor)
    serve(archive, "cann-9", "run-10", "lease-10", 1.2)


def stored(archive: Archive) -> set[tuple[int, str]]:
    rows = archive.tables.scan("serving_comparisons", columns=["version", "verdict"]).to_pylist()
    return {(row["version"], row["verdict"]) for row in rows}


def test_a_comparison_of_servers_is_published_once_and_stays_beside_the_next(
    settings: Settings, archive: Archive
) -> None:
    settings.prepare()
    two_builds(archive)
    first = compare_serving_archived(settings, archive, "cann-8", "cann-9")
    assert first is not None and (first.published.address, first.published.created) == (f"{SERVED}/v1", True)
    again = compare_serving_archived(settings, archive, "cann-8", "cann-9")
    assert again is not None and not again.published.created and again.rows.equals(first.rows)

    serve(archive, "cann-9", "run-11", "lease-11", 1.0)
    second = compare_serving_archived(settings, archive, "cann-8", "cann-9")
    assert second is not None and second.published.address == f"{SERVED}/v2"
    assert (1, "SLOWER") in stored(archive) and not {(2, "SLOWER"), (2, "MISSING")} & stored(archive)
    found = [(p.version, p.candidate_ids) for p in publications(archive)]
    assert found == [(1, ("run-10",)), (2, ("run-11",))]
    names = {item.key.removeprefix(f"{SERVED}/") for item in archive.objects.list(f"{SERVED}/")}
    assert {"latest.json", "v1/report.html", "v1/validation.html", "v2/comparison.csv"} <= names
    runs = {v.run_id: v.stays_because for v in judged(archive, 0, time.time())}
    assert runs["run-10"] == f"{SERVED}/v1" and runs["run-11"] == f"{SERVED}/v2" and runs["run-00"] is None


def test_rules_that_changed_judge_the_same_launches_again_and_the_old_verdicts_stay(
    settings: Settings, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.prepare()
    two_builds(archive)
    compare_serving_archived(settings, archive, "cann-8", "cann-9")
    serve(archive, "cann-9", "run-11", "lease-11", 1.0)
    assert resting_on(archive, ["run-11"]) == []
    (published,) = resting_on(archive, ["run-10"])
    assert judge_again(settings, archive, published).num_rows == 0 and len(publications(archive)) == 1

    present = serving_compare.ANALYSIS_VERSION
    monkeypatch.setattr(serving_compare, "ANALYSIS_VERSION", present + 1)
    serve(archive, "cann-9", "run-10", "lease-10", 1.0)  # what rebuilding from raw could find
    changed = judge_again(settings, archive, published).to_pylist()
    assert len(changed) == 8 and {row["old_verdict"] for row in changed} == {"SLOWER"}
    one = changed[0]
    assert one["new_verdict"] != "SLOWER" and one["point"].startswith("bf16, ")
    assert (one["compared"], one["old_version"], one["new_version"]) == ("serving", 1, 2)
    assert (one["old_analysis_version"], one["new_analysis_version"]) == (present, present + 1)
    assert [(p.version, p.candidate_ids) for p in publications(archive)] == [
        (1, ("run-10",)), (2, ("run-10",)),
    ]  # fmt: skip


def test_rows_from_before_there_was_an_address_are_version_1_and_the_next_is_version_2(
    settings: Settings, archive: Archive
) -> None:
    settings.prepare()
    two_builds(archive)
    judged_now = compare_serving_archived(settings, archive, "cann-8", "cann-9")
    assert judged_now is not None
    archive.objects.delete_prefix(f"{SERVED}/")  # that version wrote rows and no address
    (older,) = publications(archive)
    assert older.version == 1 and set(needed(archive)) == set(older.stands_on)
    assert judge_again(settings, archive, older).num_rows == 0
    assert [p.version for p in publications(archive)] == [1, 2]


def test_without_launches_on_a_side_there_is_nothing_to_compare(settings: Settings, archive: Archive) -> None:
    serve(archive, "cann-8", "run-1", "lease-1", 1.0)
    row = case.neutral("runs", {**RUN, "run_id": "run-2", "build": "cann-9", "experiment": "B"})
    archive.tables.write_run({"runs": from_rows("runs", [row])})
    assert compare_serving_archived(settings, archive, "cann-8", "cann-9") is None
