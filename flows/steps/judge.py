"""Compare two archived builds, operators and servers, and publish the verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tilewatch.data_contracts import schema
from tilewatch.flows.steps.compare import compare_archived
from tilewatch.flows.steps.requests import CompareRequest
from tilewatch.flows.steps.runner import Runner
from tilewatch.flows.steps.serving_compare import ServingCompared, compare_serving_archived

SHOWN = ("verdict", "experiment", "candidate_arm", "linear", "axis_value", "ratio", "verdict_reason")


@dataclass(frozen=True)
class Comparison:
    """What a comparison came to: its rows, where it is published, and the report on this host.

    ``serving`` is there if both sides launched servers. Without operators ``rows`` is empty, and nothing
    is published beside the page of the servers.
    """

    rows: pa.Table
    address: str
    created: bool
    report: Path
    serving: ServingCompared | None = None


def judge(runner: Runner, request: CompareRequest) -> Comparison:
    """Judge the candidate against the baseline point by point and publish the table once.

    Raises NothingToCompareError for names that stand for no two archived sides.
    """
    settings = runner.settings
    serving = runner.repeatable(
        "judge serving",
        lambda archive: compare_serving_archived(
            settings, archive, request.baseline, request.candidate, overrides=request.overrides
        ),
    )
    if serving is not None and serving.only:
        return Comparison(schema("comparisons").empty_table(), "", False, serving.report, serving)
    done = runner.repeatable(
        "judge and publish",
        lambda archive: compare_archived(
            settings,
            archive,
            request.baseline,
            request.candidate,
            second_lease=request.second_lease,
            overrides=request.overrides,
        ),
    )
    address = done.published.address
    worst = done.rows.select(SHOWN).sort_by([("ratio", "descending")]).slice(0, 50)
    runner.leave_table("comparison", worst.to_pylist(), f"published at {address}")
    runner.leave_link("comparison-report", done.report, "report")
    return Comparison(done.rows, address, done.published.created, done.report, serving)
