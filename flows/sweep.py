"""Sweep: plan, measure, archive, tabulate, analyse, publish. The recipe of every other flow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from prefect import flow, runtime, task
from prefect.artifacts import create_link_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from tilewatch.flows.experiments import experiments, serving_experiments
from tilewatch.flows.fan_out import share
from tilewatch.flows.requests import SweepRequest
from tilewatch.flows.retries import SAFE_TO_REPEAT
from tilewatch.flows.serving import serving
from tilewatch.flows.steps.measure import Batch, batches, measure_batch
from tilewatch.flows.steps.prepare import SweepOptions, plans, prepare, serving_plans
from tilewatch.flows.steps.report import SweepReport, report_run
from tilewatch.flows.steps.tabulate import Tabulated, rebuild_run, tabulate_run
from tilewatch.infra import progress, spool
from tilewatch.infra.archive import open_archive
from tilewatch.infra.counts import counts_of
from tilewatch.infra.lease import Lease, leased
from tilewatch.infra.logs import recorded
from tilewatch.infra.raw_zone import archive_run
from tilewatch.infra.settings import Settings, load_settings
from tilewatch.infra.spool import RunFolder
from tilewatch.tasks.measure.serving.load import BUILTIN
from tilewatch.tasks.plan.plan import PlanError

Captures = dict[str, list[tuple[Path, str]]]


@flow(name="sweep", flow_run_name="sweep {request.title}")
def sweep(request: SweepRequest) -> SweepReport:
    """Measure experiments on one device, archive the captures, store the tables and publish a report."""
    settings = load_settings()
    with open_archive(settings):
        run_id = request.resume or start(request)
        folder = spool.find(settings, run_id)
        with recorded(settings, run_id=run_id):
            if request.devices:
                share(folder.document, request)
            tables = gathered(run_id) if request.devices else on_this_device(settings, folder)
            report = publish(tables)
    leave_artifacts(report)
    leave_counts(settings, tables)
    return report


def on_this_device(settings: Settings, folder: RunFolder) -> Tabulated:
    """Measure what the run lacks, operators in one lease, then servers in another; archive, tabulate."""
    if todo := list(batches(folder)):
        progress.current().stage("measure", sum(1 for _ in folder.remaining()))
        with leased(settings, folder.document) as lease:
            for batch in todo:
                measure(folder, batch, lease)
    if any(folder.remaining_launches()):
        serving(folder.document.run_id)
    return tabulated(folder, archived(folder))


def check(request: SweepRequest) -> None:
    """Refuse, before any server or device is touched, a request that cannot be planned or resumed."""
    if request.resume is not None:
        spool.find(load_settings(), request.resume)
        return
    settings = load_settings()
    asked, servers = options(request), serving_experiments(settings)
    plans(asked, experiments(settings), seed=1, serving=servers)
    if serving_plans(asked, servers, 1, lambda: BUILTIN) and request.devices:
        raise PlanError("serving experiments are measured on one device; leave devices empty")
    if len(request.environments) > 1 and request.devices:
        raise PlanError("builds side by side are measured on one device; leave devices empty")


def options(request: SweepRequest) -> SweepOptions:
    """The request as the pipeline takes it."""
    asked = request.model_dump(exclude={"resume", "devices", "patience_s", "environments"})
    return SweepOptions(**asked, environments=request.environments)


@task(name="start", cache_policy=NO_CACHE)
def start(request: SweepRequest) -> str:
    """Describe device and build, plan every experiment, and give the run its id.

    A flow run that is started again, because its worker died, goes on with the run that it began.
    """
    return begun_once(request, prepare)


def begun_once(request: SweepRequest, prepared: Callable[..., RunFolder]) -> str:
    """Id of the run that this flow run began; ``prepared`` makes it, as ``prepare`` does, only once."""
    settings = load_settings()
    asker = f"{runtime.flow_run.root_flow_run_id} {request.model_dump_json()}"
    if begun := spool.asked_by(settings, asker):
        return begun
    with open_archive(settings) as archive:
        known = experiments(settings), serving_experiments(settings)
        folder = prepared(settings, archive, options(request), *known)
    spool.note_asker(folder, asker)
    return folder.document.run_id


@task(name="measure", task_run_name="measure {batch.experiment} block {batch.block}", cache_policy=NO_CACHE)
def measure(folder: RunFolder, batch: Batch, lease: Lease) -> int:
    """Measure one ABBA block; returns how many processes left a complete capture."""
    return sum(o.status == "complete" for o in measure_batch(load_settings(), folder, batch, lease))


@task(name="archive", **SAFE_TO_REPEAT)
def archived(folder: RunFolder) -> Captures:
    """Store every capture; safe to repeat, so it is retried."""
    with open_archive(load_settings()) as archive:
        stored = archive_run(archive, folder)
    return {letter: [(path, ref.prefix) for path, ref in refs] for letter, refs in stored.items()}


@task(name="gather", **SAFE_TO_REPEAT)
def gathered(run_id: str) -> Tabulated:
    """Tables of a run that several devices measured, from the blocks that they claimed."""
    settings = load_settings()
    with open_archive(settings) as archive:
        return rebuild_run(settings, archive, run_id)


@task(name="tabulate", **SAFE_TO_REPEAT)
def tabulated(folder: RunFolder, captures: Captures) -> Tabulated:
    """Read, align, validate and store the tables; safe to repeat, so it is retried."""
    settings = load_settings()
    with open_archive(settings) as archive:
        return tabulate_run(settings, archive, folder.document, captures)


@task(name="publish", **SAFE_TO_REPEAT)
def publish(tables: Tabulated) -> SweepReport:
    """Analyse the run and publish its report."""
    settings = load_settings()
    with open_archive(settings) as archive:
        return report_run(settings, archive, tables)


def leave_counts(settings: Settings, done: Tabulated) -> None:
    """Leave how much there is and how long the device was waited for as a Prefect table."""
    run_id = done.document.run_id
    counts = counts_of(done.tables, settings.spool_folder, run_id)
    rows = [{"what": name, "count": count} for name, count in counts.items()]
    create_table_artifact(rows, key="counts", description=f"run {run_id}")


def leave_artifacts(report: SweepReport) -> None:
    """Leave the summary as a Prefect table and the report as a link."""
    create_table_artifact(report.summary.to_pylist(), key="sweep", description=report.sentence)
    create_link_artifact(report.path.as_uri(), key="sweep-report", link_text=f"report of {report.run_id}")
