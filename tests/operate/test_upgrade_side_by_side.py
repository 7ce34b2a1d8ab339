"""An upgrade whose builds stand side by side is judged inside one lease, against what was approved."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.flows.conftest import Home, home
from tests.infra.conftest import rows_of
from tilewatch.flows.cann_upgrade import in_one_lease
from tilewatch.flows.confirmation import Measured
from tilewatch.flows.steps.report import SweepReport
from tilewatch.infra.builds import PresentBuild
from tilewatch.infra.objects import ObjectStore
from tilewatch.infra.tables import TableStore

__all__ = ["home"]

FOUND = PresentBuild("new", "910C", "")


def report(run_id: str) -> SweepReport:
    return SweepReport(run_id, run_id, Path("report.html"), "", pa.table({}), (), False)


@pytest.mark.parametrize(("beside", "baseline"), [("same", "beside"), ("other", "approved")])
def test_only_the_approved_build_itself_may_stand_in_for_the_baseline(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beside: str, baseline: str
) -> None:
    endpoint = object_store.endpoint
    for name, value in (
        ("HOME", str(tmp_path)),
        ("S3_ENDPOINT", endpoint.url),
        ("S3_BUCKET", endpoint.bucket),
        ("S3_ACCESS_KEY", endpoint.access_key.get_secret_value()),
        ("S3_SECRET_KEY", endpoint.secret_key.get_secret_value()),
    ):
        monkeypatch.setenv(f"TILEWATCH_{name}", value)
    runs = [("approved", "same"), ("beside", beside), ("candidate", "new")]
    rows = [
        {"run_id": r, "build": r, "build_id": b, "experiment": "A", "status": "complete"} for r, b in runs
    ]
    TableStore(endpoint).write("runs", rows_of("runs", rows))
    together = Measured(report("candidate"), report("beside"))
    assert in_one_lease.fn("approved", FOUND, together, "npu") == baseline
    assert in_one_lease.fn("approved", FOUND, Measured(report("candidate"), None), "npu") == "approved"


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_an_upgrade_by_hand_measures_both_builds_in_one_lease(home: Home, tmp_path: Path) -> None:
    script = tmp_path / "set_env.sh"
    script.write_text("export ONEDNN_MAX_CPU_ISA=AVX2\n")
    builds = ("--environment", f"old={script}", "--environment", f"new=python={sys.executable}")
    home.run("run", "B", "--preset", "smoke", "--arm", "bf16", "--processes", "5", *builds[:2])
    home.run("baseline", "approve", "old", "--reason", "before the upgrade")
    said = home.run(
        "upgrade", "B", "--preset", "smoke", "--arm", "bf16", "--processes", "5", *builds, timeout=1200
    )
    assert "Published at" in said
    rows = json.loads(
        home.run("query", "SELECT DISTINCT baseline, between_leases FROM comparisons", "--json")
    )
    assert {row["between_leases"] for row in rows} == {False}
