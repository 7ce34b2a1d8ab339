"""Baselines are approved by someone for a reason; every approval stays on record and the newest is armed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tilewatch.data_contracts import from_rows
from tilewatch.flows.steps.baselines import approvals, armed
from tilewatch.flows.steps.run_names import NothingToCompareError
from tilewatch.infra.archive import Archive
from tilewatch.infra.objects import Endpoint, ObjectStore
from tilewatch.infra.tables import TableStore

ROW = {
    "experiment": "A", "arm": "standalone", "point_id": "0" * 16, "metric": "duration_ns", "build_id": "b",
    "run_ids": ["01R"], "agent": "cpu", "evidence": "measured", "method_hash": "m", "processes": 5,
    "value_ns": 100.0, "approved_by": "someone", "reason": "why", "analysis_version": 1,
}  # fmt: skip


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    nowhere = Endpoint.__new__(Endpoint)
    return Archive(nowhere, ObjectStore.__new__(ObjectStore), TableStore(tmp_path))


def approval(name: str, build: str, device_class: str, approved_ns: int) -> pa.Table:
    row: dict[str, Any] = {
        **ROW, "name": name, "build": build, "device_class": device_class, "approved_ns": approved_ns
    }  # fmt: skip
    return from_rows("baselines", [row])


def test_the_newest_approval_of_a_device_class_is_armed_and_the_older_ones_stay(archive: Archive) -> None:
    archive.tables.write("baselines", approval("old@1", "old", "910C", 1_000))
    archive.tables.write("baselines", approval("new@2", "new", "910C", 2_000))
    archive.tables.write("baselines", approval("other@3", "other", "950", 3_000))
    assert armed(archive, "910C", "cpu").build == "new"
    assert armed(archive, "950", "cpu").build == "other"
    rows = approvals(archive).to_pylist()
    assert [(r["build"], r["armed"]) for r in rows] == [("other", True), ("new", True), ("old", False)]


def test_a_device_class_without_an_approval_is_not_armed(archive: Archive) -> None:
    archive.tables.write("baselines", approval("new@2", "new", "910C", 2_000))
    with pytest.raises(NothingToCompareError, match="not armed: no baseline is approved for 950, agent cpu"):
        armed(archive, "950", "cpu")
