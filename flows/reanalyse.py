"""Reanalyse: rebuild archived runs from raw with the present code, and tell which verdicts changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_table_artifact

from tilewatch.flows.requests import ReanalyseRequest
from tilewatch.flows.retries import SAFE_TO_REPEAT
from tilewatch.flows.steps import judge_again
from tilewatch.flows.steps.published import Publication
from tilewatch.flows.steps.report import SweepReport, report_run
from tilewatch.flows.steps.shared_labels import labels_shared
from tilewatch.flows.steps.tabulate import rebuild_run
from tilewatch.infra.archive import open_archive
from tilewatch.infra.settings import load_settings


@dataclass(frozen=True)
class Reanalysis:
    """The rebuilt runs, one row a point whose verdict is another one now, and labels of several builds."""

    runs: tuple[SweepReport, ...]
    changed: tuple[dict[str, Any], ...]
    shared_labels: tuple[str, ...] = ()


@flow(name="reanalyse", flow_run_name="reanalyse {request.runs}")
def reanalyse(request: ReanalyseRequest) -> Reanalysis:
    """Rebuild every table of the runs from raw, then judge again the comparisons that rest on them.

    A comparison whose inputs or rules changed becomes a new version beside the old one.
    """
    rebuilt = tuple(rebuild(run) for run in request.runs)
    published = resting_on(request.runs) if request.comparisons else []
    changed = [row for one in published for row in judged_again(one)]
    shared = shared_label_sentences()
    create_table_artifact(
        changed,
        key="reanalysis",
        description=f"{len(rebuilt)} runs, {len(published)} comparisons, {len(changed)} verdicts changed"
        + "".join(f"; {sentence}" for sentence in shared),
    )
    return Reanalysis(rebuilt, tuple(changed), tuple(shared))


@task(name="rebuild", task_run_name="rebuild {run}", **SAFE_TO_REPEAT)
def rebuild(run: str) -> SweepReport:
    """Rebuild one run and its report; safe to repeat, so it is retried."""
    settings = load_settings()
    with open_archive(settings) as archive:
        return report_run(settings, archive, rebuild_run(settings, archive, run))


@task(name="shared labels", **SAFE_TO_REPEAT)
def shared_label_sentences() -> list[str]:
    """What a person must know of labels that stand for more than one build."""
    with open_archive(load_settings()) as archive:
        return [shared.sentence for shared in labels_shared(archive)]


@task(name="comparisons", **SAFE_TO_REPEAT)
def resting_on(runs: tuple[str, ...]) -> list[Publication]:
    """Published comparisons that rest on one of ``runs``."""
    with open_archive(load_settings()) as archive:
        return judge_again.resting_on(archive, runs)


@task(name="judge again", task_run_name="judge {publication.address}", **SAFE_TO_REPEAT)
def judged_again(publication: Publication) -> list[dict[str, Any]]:
    """Judge what is published again; one row a point whose verdict is another one now."""
    settings = load_settings()
    with open_archive(settings) as archive:
        return list(judge_again.judge_again(settings, archive, publication).to_pylist())
