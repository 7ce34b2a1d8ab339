"""Regression: a sweep, then its comparison with the baseline."""

from __future__ import annotations

from dataclasses import dataclass

from prefect import flow

from flows.compare import Comparison, compare
from flows.requests import CompareRequest, RegressionRequest
from flows.sweep import sweep
from infra.pipeline.report import SweepReport


@dataclass(frozen=True)
class Regression:
    """What was measured, and how it compares with the baseline."""

    sweep: SweepReport
    comparison: Comparison


@flow(name="regression", flow_run_name="regression against {request.baseline}")
def regression(request: RegressionRequest) -> Regression:
    """Measure, then judge the new run against the baseline."""
    measured = sweep(request.sweep)
    against = CompareRequest(
        baseline=request.baseline, candidate=measured.run_id, overrides=request.overrides
    )
    return Regression(measured, compare(against))
