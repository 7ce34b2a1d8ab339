"""Several builds of one host as arms of one ABBA sweep: one run a build, one lease, then their comparison."""

from __future__ import annotations

from dataclasses import dataclass

from prefect import flow

from tilewatch.flows.compare import compare
from tilewatch.flows.prefect_runner import PrefectRunner
from tilewatch.flows.steps.judge import Comparison
from tilewatch.flows.steps.prepare import prepare_together
from tilewatch.flows.steps.report import SweepReport
from tilewatch.flows.steps.requests import CompareRequest, SweepRequest
from tilewatch.flows.steps.sweep import sweep_runs
from tilewatch.flows.sweep import begun_once
from tilewatch.infra import spool
from tilewatch.infra.archive import open_archive
from tilewatch.infra.settings import Settings, load_settings
from tilewatch.infra.spool import RunFolder


@dataclass(frozen=True)
class SideBySide:
    """One report a build in the order asked for, and every later build against the first."""

    sweeps: tuple[SweepReport, ...]
    comparisons: tuple[Comparison, ...]


@flow(name="side_by_side", flow_run_name="side by side {request.title}")
def side_by_side(request: SweepRequest) -> SideBySide:
    """Measure every build of ``request.environments`` in one lease, in ABBA order, and compare them.

    Each process is started under its own build's environment and verifies the build it finds there; captures
    and tables are filed under the build's own label. A build of which no process completed is not compared.
    ``resume`` takes the run id of any of them.
    """
    settings = load_settings()
    runner = PrefectRunner(settings)
    with open_archive(settings):
        run_id = request.resume or begun_once(runner, request, lambda *given: prepare_together(*given)[0])
        reports = sweep_runs(runner, runs_beside(settings, run_id))
    first, *others = reports
    comparisons = [
        compare(CompareRequest(baseline=first.run_id, candidate=other.run_id))
        for other in others
        if not (first.failed or other.failed)
    ]
    return SideBySide(tuple(reports), tuple(comparisons))


def runs_beside(settings: Settings, run_id: str) -> list[RunFolder]:
    """The runs measured together with ``run_id``, itself included, in order; often it alone."""
    folder = spool.find(settings, run_id)
    return [spool.find(settings, one) for one in folder.document.beside or (run_id,)]
