"""Reanalyse: archived runs from raw with the present code, and the comparisons that rest on them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilewatch.flows.steps.judge_again import judge_again, resting_on
from tilewatch.flows.steps.published import Publication
from tilewatch.flows.steps.report import SweepReport, report_run
from tilewatch.flows.steps.requests import ReanalyseRequest
from tilewatch.flows.steps.runner import Runner
from tilewatch.flows.steps.shared_labels import labels_shared
from tilewatch.flows.steps.tabulate import rebuild_run
from tilewatch.infra.archive import Archive
from tilewatch.infra.settings import Settings


@dataclass(frozen=True)
class Reanalysis:
    """The rebuilt runs, the comparisons judged again, and one row a point whose verdict is now another."""

    runs: tuple[SweepReport, ...]
    judged: tuple[Publication, ...]
    changed: tuple[dict[str, Any], ...]
    shared_labels: tuple[str, ...]
    """A sentence for each label that stands for more than one build."""

    @property
    def sentence(self) -> str:
        """What came of it, in figures."""
        return f"{len(self.runs)} runs, {len(self.judged)} comparisons, {len(self.changed)} verdicts changed"


def reanalyse_runs(runner: Runner, request: ReanalyseRequest) -> Reanalysis:
    """Rebuild every table of the runs from raw, then judge again the comparisons that rest on them.

    A comparison whose inputs or rules changed becomes a new version beside the old one.
    """
    rebuilt = tuple(
        runner.repeatable("rebuild", partial(_rebuild, runner.settings, run), f"rebuild {run}")
        for run in request.runs
    )
    published: Sequence[Publication] = ()
    if request.comparisons:
        published = runner.repeatable("comparisons", lambda archive: resting_on(archive, request.runs))
    changed = [row for one in published for row in _judged_again(runner, one)]
    shared = runner.repeatable("shared labels", lambda archive: [s.sentence for s in labels_shared(archive)])
    done = Reanalysis(rebuilt, tuple(published), tuple(changed), tuple(shared))
    runner.leave_table("reanalysis", changed, "; ".join([done.sentence, *shared]))
    return done


def _rebuild(settings: Settings, run: str, archive: Archive) -> SweepReport:
    return report_run(settings, archive, rebuild_run(settings, archive, run))


def _judged_again(runner: Runner, publication: Publication) -> list[dict[str, Any]]:
    """What changed in one published comparison: one row a point whose verdict is another one now."""

    def judged(archive: Archive) -> list[dict[str, Any]]:
        return list(judge_again(runner.settings, archive, publication).to_pylist())

    return runner.repeatable("judge again", judged, f"judge {publication.address}")
