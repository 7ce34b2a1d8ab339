"""Sweep: plan, measure, archive, tabulate, analyse, publish. The recipe of every other flow."""

from __future__ import annotations

from collections.abc import Callable

from prefect import flow, runtime

from tilewatch.flows.experiments import experiments, serving_experiments
from tilewatch.flows.fan_out import share
from tilewatch.flows.prefect_runner import PrefectRunner
from tilewatch.flows.steps.prepare import plans, prepare, serving_plans
from tilewatch.flows.steps.report import SweepReport
from tilewatch.flows.steps.requests import SweepRequest
from tilewatch.flows.steps.runner import Runner
from tilewatch.flows.steps.sweep import publish_run, sweep_runs
from tilewatch.flows.steps.tabulate import rebuild_run
from tilewatch.infra import spool
from tilewatch.infra.archive import open_archive
from tilewatch.infra.logs import recorded
from tilewatch.infra.settings import load_settings
from tilewatch.infra.spool import RunFolder
from tilewatch.tasks.measure.serving.load import BUILTIN
from tilewatch.tasks.plan.plan import PlanError


@flow(name="sweep", flow_run_name="sweep {request.title}")
def sweep(request: SweepRequest) -> SweepReport:
    """Measure experiments on one device, archive the captures, store the tables and publish a report."""
    settings = load_settings()
    runner = PrefectRunner(settings)
    with open_archive(settings):
        run_id = request.resume or begun_once(runner, request, prepare)
        folder = spool.find(settings, run_id)
        with recorded(settings, run_id=run_id):
            if not request.devices:
                return sweep_runs(runner, [folder])[0]
            share(folder.document, request)
            gathered = runner.repeatable("gather", lambda archive: rebuild_run(settings, archive, run_id))
            return publish_run(runner, gathered)


def check(request: SweepRequest) -> None:
    """Refuse, before any server or device is touched, a request that cannot be planned or resumed."""
    settings = load_settings()
    if request.resume is not None:
        spool.find(settings, request.resume)
        return
    servers = serving_experiments(settings)
    plans(request, experiments(settings), seed=1, serving=servers)
    if serving_plans(request, servers, 1, lambda: BUILTIN) and request.devices:
        raise PlanError("serving experiments are measured on one device; leave devices empty")
    if len(request.environments) > 1 and request.devices:
        raise PlanError("builds side by side are measured on one device; leave devices empty")


def begun_once(runner: Runner, request: SweepRequest, prepared: Callable[..., RunFolder]) -> str:
    """Id of the run that this flow run began; ``prepared`` makes it, as ``prepare`` does, only once.

    A flow run that is started again, because its worker died, goes on with the run that it began.
    """
    settings = runner.settings
    asker = f"{runtime.flow_run.root_flow_run_id} {request.model_dump_json()}"

    def start() -> str:
        if begun := spool.asked_by(settings, asker):
            return begun
        with open_archive(settings) as archive:
            known = experiments(settings), serving_experiments(settings)
            folder = prepared(settings, archive, request, *known)
        spool.note_asker(folder, asker)
        return folder.document.run_id

    return runner.once("start", start)
