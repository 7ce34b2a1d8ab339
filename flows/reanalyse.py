"""Reanalyse: rebuild archived runs from raw with the present code, and tell which verdicts changed."""

from __future__ import annotations

from prefect import flow

from tilewatch.flows.prefect_runner import PrefectRunner
from tilewatch.flows.steps.reanalyse import Reanalysis, reanalyse_runs
from tilewatch.flows.steps.requests import ReanalyseRequest
from tilewatch.infra.settings import load_settings


@flow(name="reanalyse", flow_run_name="reanalyse {request.runs}")
def reanalyse(request: ReanalyseRequest) -> Reanalysis:
    """Rebuild every table of the runs from raw, then judge again the comparisons that rest on them."""
    return reanalyse_runs(PrefectRunner(load_settings()), request)
