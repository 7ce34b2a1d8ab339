"""Regression: a sweep, its comparison with the approved baseline, confirmation, and an alert or one line."""

from __future__ import annotations

from dataclasses import dataclass

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from tilewatch.flows.alerts import alert, refuse_uncompared
from tilewatch.flows.confirmation import compare_confirmed, measure
from tilewatch.flows.steps.baselines import baseline_runs
from tilewatch.flows.steps.judge import Comparison
from tilewatch.flows.steps.report import SweepReport
from tilewatch.flows.steps.requests import CompareRequest, RegressionRequest
from tilewatch.infra.archive import open_archive
from tilewatch.infra.builds import present_build
from tilewatch.infra.settings import load_settings


@dataclass(frozen=True)
class Regression:
    """What was measured, how it compares with the baseline, and what is told of it."""

    sweep: SweepReport
    comparison: Comparison
    text: str


@flow(name="regression", flow_run_name="regression against {request.baseline}")
def regression(request: RegressionRequest) -> Regression:
    """Measure, judge the new run against the baseline, confirm what is SLOWER, and tell.

    Fails as "not armed" before anything is measured where no baseline is approved, and as "not comparable"
    after it has told what there is to tell where an armed point was refused or is missing.
    """
    refuse_unarmed(request)
    measured = measure(request.sweep).candidate
    against = CompareRequest(
        baseline=request.baseline, candidate=measured.run_id, overrides=request.overrides
    )
    compared = compare_confirmed(against, request.sweep, measured)
    command = f"tilewatch compare {compared.rows['baseline'][0]} {measured.run_id}"
    text = alert("regression", compared, command)
    refuse_uncompared(compared, command, text)
    return Regression(measured, compared, text)


@task(name="armed", cache_policy=NO_CACHE)
def refuse_unarmed(request: RegressionRequest) -> None:
    """Raise NothingToCompareError where the baseline stands for nothing on this device."""
    settings = load_settings()
    asked = request.sweep
    found = present_build(settings, asked.agent, label=asked.build, soc=asked.soc)
    with open_archive(settings) as archive:
        baseline_runs(archive, request.baseline, found.device_class, asked.agent)
