"""What is old may go; what a baseline or a published comparison stands on never does."""

from __future__ import annotations

import time

import pytest

from tests.infra.conftest import rows_of
from tilewatch.flows.steps.retention import DAY_S, judged, let_go
from tilewatch.infra.archive import Archive
from tilewatch.infra.objects import Endpoint, ObjectStore
from tilewatch.infra.tables import TableStore
from tilewatch.tasks.publish.address import publish_comparison

NOW_S = time.time()


@pytest.fixture
def archive(object_store: ObjectStore) -> Archive:
    """Runs of 40 days: one free, others that a baseline or a comparison stands on; and one of today.

    ``cut_off`` is under a comparison whose publisher died before it wrote the table.
    """
    endpoint: Endpoint = object_store.endpoint
    tables = TableStore(endpoint)
    old_ns, new_ns = int((NOW_S - 40 * DAY_S) * 1e9), int(NOW_S * 1e9)
    old = ("free", "approved", "compared", "served", "arms", "cut_off")
    runs = dict.fromkeys(old, old_ns) | {"young": new_ns}
    tables.write("runs", rows_of("runs", [{"run_id": r, "started_ns": t} for r, t in runs.items()]))
    captures = [{"run_id": r, "capture_id": r, "raw_prefix": f"raw/A/{r}"} for r in runs]
    tables.write("captures", rows_of("captures", captures))
    tables.write("baselines", rows_of("baselines", [{"name": "b@1", "run_ids": ["approved"]}]))
    comparison = {"baseline": "b", "candidate": "c", "version": 2, "candidate_run_ids": ["compared"]}
    tables.write("comparisons", rows_of("comparisons", [comparison]))
    served = {"baseline": "b", "candidate": "c", "compared_by": "build", "version": 3}
    own = {"compared_by": "arm", "comparison_id": "own", "run_id": "arms", "candidate_run_ids": ["arms"]}
    both = [{**served, "run_id": "served", "base_run_ids": ["served"]}, own]
    tables.write("serving_comparisons", rows_of("serving_comparisons", both))
    cut_off = {"baseline": "b", "candidate": "d", "candidate_run_ids": ["cut_off"]}
    publish_comparison(
        object_store,
        rows_of("comparisons", [cut_off]),
        plan_hashes=["p"],
        pages={"report.html": "<html>"},
    )
    for run in runs:
        object_store.put_new(f"raw/A/{run}/manifest.json", b"{}")
        object_store.put_new(f"raw/runs/{run}.json", b"{}")
        object_store.put_new(f"reports/{run}/report.html", b"x")
    return Archive(endpoint, object_store, tables)


def keys(archive: Archive) -> set[str]:
    return {item.key for top in ("raw/", "reports/") for item in archive.objects.list(top)}


def test_only_an_old_run_that_nothing_stands_on_may_go(archive: Archive) -> None:
    reasons = {v.run_id: v.stays_because for v in judged(archive, 30, NOW_S)}
    assert reasons == {
        "free": None,
        "approved": "baseline b@1",
        "compared": "comparisons/b/c/v2",
        "served": "comparisons/b/c/serving/v3",
        "arms": None,
        "cut_off": "comparisons/b/d/v1",
        "young": "younger than 30 days",
    }


def test_judging_deletes_nothing_and_a_run_that_stays_is_refused(archive: Archive) -> None:
    before = keys(archive)
    kept = [v for v in judged(archive, 30, NOW_S) if v.stays_because]
    with pytest.raises(ValueError, match="run approved stays: baseline b@1"):
        let_go(archive, next(v for v in kept if v.run_id == "approved"), ["raw"])
    assert keys(archive) == before


def test_each_kind_goes_by_itself_and_the_rest_is_untouched(archive: Archive) -> None:
    free = next(v for v in judged(archive, 30, NOW_S) if v.run_id == "free")
    assert free.raw_bytes == 2
    before = keys(archive)
    let_go(archive, free, ["raw"])
    assert before - keys(archive) == {"raw/A/free/manifest.json", "raw/runs/free.json"}
    let_go(archive, free, ["reports", "tables"])
    assert before - keys(archive) >= {"reports/free/report.html"}
    for table in ("runs", "captures"):
        left = set(archive.tables.scan(table, columns=["run_id"])["run_id"].to_pylist())
        assert left == {"approved", "compared", "served", "arms", "cut_off", "young"}
