"""Several builds of one host as arms of one ABBA sweep: one run a build, one lease, then their comparison."""

from __future__ import annotations

from dataclasses import dataclass

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from tilewatch.flows.compare import Comparison, compare
from tilewatch.flows.requests import CompareRequest, SweepRequest
from tilewatch.flows.steps.measure import batches_together
from tilewatch.flows.steps.prepare import prepare_together
from tilewatch.flows.steps.report import SweepReport
from tilewatch.flows.sweep import archived, begun_once, leave_artifacts, measure, publish, tabulated
from tilewatch.infra import progress, spool
from tilewatch.infra.archive import open_archive
from tilewatch.infra.lease import leased
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
    with open_archive(settings):
        folders = runs_beside(settings, request.resume or start_together(request))
        todo = list(batches_together(folders))
        progress.current().stage("measure", sum(1 for f in folders for _ in f.remaining()))
        with leased(settings, folders[0].document) as lease:
            for batch, folder in todo:
                measure(folder, batch, lease)
        reports = [publish(tabulated(folder, archived(folder))) for folder in folders]
    for report in reports:
        leave_artifacts(report)
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


@task(name="start together", cache_policy=NO_CACHE)
def start_together(request: SweepRequest) -> str:
    """Describe every build and give each a run; returns the id of the first.

    A flow run that is started again, because its worker died, goes on with the runs that it began.
    """
    return begun_once(request, lambda *given: prepare_together(*given)[0])
