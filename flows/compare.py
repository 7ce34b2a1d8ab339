"""Compare two archived builds and publish the verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from prefect import flow, task
from prefect.artifacts import create_link_artifact, create_table_artifact

from tilewatch.data_contracts import schema
from tilewatch.flows.requests import CompareRequest
from tilewatch.flows.retries import SAFE_TO_REPEAT
from tilewatch.flows.steps.compare import compare_archived
from tilewatch.flows.steps.published import Kept
from tilewatch.flows.steps.serving_compare import ServingCompared, compare_serving_archived
from tilewatch.infra.archive import open_archive
from tilewatch.infra.settings import load_settings


@dataclass(frozen=True)
class Comparison:
    """What a comparison came to: its rows, where it is published, and the report on this host.

    ``serving`` is there where both sides launched servers. Without operators ``rows`` is empty, and nothing
    is published beside the page of the servers.
    """

    rows: pa.Table
    address: str
    created: bool
    report: Path
    serving: ServingCompared | None = None


@flow(name="compare", flow_run_name="compare {request.baseline} {request.candidate}")
def compare(request: CompareRequest) -> Comparison:
    """Judge the candidate against the baseline point by point and publish the table once."""
    serving = served(request)
    if serving is not None and serving.only:
        return Comparison(schema("comparisons").empty_table(), "", False, serving.report, serving)
    done = judged(request)
    artifacts(done)
    return Comparison(done.rows, done.published.address, done.published.created, done.report, serving)


@task(name="judge serving", **SAFE_TO_REPEAT)
def served(request: CompareRequest) -> ServingCompared | None:
    """Compare what servers showed, where both builds launched any; safe to repeat, so it is retried."""
    settings = load_settings()
    with open_archive(settings) as archive:
        return compare_serving_archived(
            settings, archive, request.baseline, request.candidate, overrides=request.overrides
        )


@task(name="judge and publish", **SAFE_TO_REPEAT)
def judged(request: CompareRequest) -> Kept:
    """Compare, validate, store and publish; safe to repeat, so it is retried."""
    settings = load_settings()
    with open_archive(settings) as archive:
        return compare_archived(
            settings,
            archive,
            request.baseline,
            request.candidate,
            second_lease=request.second_lease,
            overrides=request.overrides,
        )


def artifacts(done: Kept) -> None:
    """Leave the verdicts as a Prefect table and the report as a link."""
    columns = ["verdict", "experiment", "candidate_arm", "linear", "axis_value", "ratio", "verdict_reason"]
    worst = done.rows.select(columns).sort_by([("ratio", "descending")]).slice(0, 50)
    key = "comparison"
    create_table_artifact(worst.to_pylist(), key=key, description=f"published at {done.published.address}")
    create_link_artifact(done.report.as_uri(), key=f"{key}-report", link_text="report")
