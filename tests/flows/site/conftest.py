"""A site over a real store that holds an invented sweep under a hostile label and a captured raw file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import orjson
import pytest
from starlette.testclient import TestClient

from tests.publish.conftest import Sweep, table
from tilewatch.flows.site.app import create_app
from tilewatch.infra.archive import Archive
from tilewatch.infra.objects import Endpoint, ObjectStore
from tilewatch.infra.tables import TableStore
from tilewatch.tasks.collect.manifest import write_manifest

HOSTILE = "<script>alert(1)</script> \x1b[31m‮/=1+1"
RAW_TEXT = "a log line\n"


@pytest.fixture(scope="session")
def archive(new_bucket: Callable[[], Endpoint], tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Two builds, one with a hostile label, one comparison, one refused row, one capture with raw files."""
    endpoint = new_bucket()
    objects, tables = ObjectStore(endpoint), TableStore(endpoint)
    folder = tmp_path_factory.mktemp("capture")
    (folder / "stdout.log").write_text(RAW_TEXT)
    manifest = write_manifest(folder)
    capture_id = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()[:32]
    assert manifest.capture_id == capture_id
    for path in folder.iterdir():
        objects.put_new(f"raw/A/cpu/{capture_id}/{path.name}", path.read_bytes())
    for build, run_id in (("cann-8.5", "01RUNA"), (HOSTILE, "01RUNB")):
        tables.write_run(Sweep(build, run_id, "simulated").tables())
    shared = {"run_id": "01RUNA", "build": "cann-8.5", "capture_id": capture_id}
    captured = {
        **shared,
        "raw_prefix": f"raw/A/cpu/{capture_id}",
        "evidence": "simulated",
        "role": "ingested",
    }
    tables.write("captures", table("captures", [captured]))
    refused = {**shared, "quarantine_id": "q1", "reason": "not a number", "raw_text": "=HYPERLINK(1)"}
    tables.write("quarantine", table("quarantine", [refused]))
    tables.write("comparisons", table("comparisons", [_slower()]))
    return Archive(endpoint, objects, tables)


def _slower() -> dict[str, object]:
    return {
        "comparison_id": "c1", "version": 1, "build": HOSTILE, "baseline": "cann-8.5", "candidate": HOSTILE,
        "experiment": "quant_matmul", "base_arm": "standalone", "candidate_arm": "standalone",
        "point_id": "quant_matmul-wq_a-64", "axis": "m", "axis_value": 64, "linear": "wq_a",
        "verdict": "SLOWER", "ratio": 1.2, "ratio_low": 1.18, "ratio_high": 1.22, "base_ns": 20_000.0,
        "candidate_ns": 24_000.0, "evidence": "simulated", "compared_by": "build", "metric": "duration_ns",
    }  # fmt: skip


@pytest.fixture
def site(archive: Archive) -> Iterator[TestClient]:
    """A client of the site, as a browser on the same machine."""
    with TestClient(create_app(archive), base_url="http://127.0.0.1:8765") as client:
        yield client


def rows_of(site: TestClient, address: str) -> list[dict[str, object]]:
    """The data of a page."""
    answer = site.get(address)
    assert answer.status_code == 200, answer.text[:300]
    return list(orjson.loads(answer.content))
