"""Compare two archived builds and publish the verdicts."""

from __future__ import annotations

from prefect import flow

from tilewatch.flows.prefect_runner import PrefectRunner
from tilewatch.flows.steps.judge import Comparison, judge
from tilewatch.flows.steps.requests import CompareRequest
from tilewatch.infra.settings import load_settings


@flow(name="compare", flow_run_name="compare {request.baseline} {request.candidate}")
def compare(request: CompareRequest) -> Comparison:
    """Judge the candidate against the baseline point by point and publish the table once."""
    return judge(PrefectRunner(load_settings()), request)
