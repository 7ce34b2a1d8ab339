"""Ingest: existing profiler output, logs and serving results into the archive."""

from __future__ import annotations

from prefect import flow, task
from prefect.artifacts import create_table_artifact

from tilewatch.flows.retries import SAFE_TO_REPEAT
from tilewatch.flows.steps.ingest import IngestReport, ingest_paths
from tilewatch.flows.steps.requests import IngestRequest
from tilewatch.infra.archive import open_archive
from tilewatch.infra.host_limits import allowed_paths
from tilewatch.infra.settings import load_settings


@flow(name="ingest", flow_run_name="ingest {request.paths}")
def ingest(request: IngestRequest) -> IngestReport:
    """Make captures of existing files, store and read them; the same bytes again store nothing."""
    report = stored(request)
    rows = [
        {
            "capture_id": one.capture.capture_id,
            "file": file.file,
            "rows": str(file.rows),
            "refused": file.quarantined,
        }
        for one in report.captures
        for file in one.account
    ]
    skipped = f", {len(report.skipped)} not recognised" if report.skipped else ""
    create_table_artifact(rows, key="ingest", description=f"{len(report.captures)} captures{skipped}")
    return report


@task(name="ingest", **SAFE_TO_REPEAT)
def stored(request: IngestRequest) -> IngestReport:
    """Store and read the paths; safe to repeat, so it is retried."""
    settings = load_settings()
    with open_archive(settings) as archive:
        return ingest_paths(settings, archive, allowed_paths(settings, request.paths), request.build)
