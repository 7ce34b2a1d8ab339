"""The demo: two simulated CANN builds through everything, then one against the other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tilewatch.flows.experiments import SHIPPED
from tilewatch.flows.steps.judge import Comparison, judge
from tilewatch.flows.steps.prepare import prepare
from tilewatch.flows.steps.requests import CompareRequest, SweepRequest
from tilewatch.flows.steps.runner import Runner
from tilewatch.flows.steps.sweep import sweep_runs
from tilewatch.infra.archive import Archive, open_archive
from tilewatch.infra.progress import Listener, Silent, current, listening
from tilewatch.infra.settings import Settings
from tilewatch.infra.spool import RunFolder
from tilewatch.tasks.plan.experiment import load_experiments

BASELINE, CANDIDATE = "sim-cann8.5.0", "sim-cann9.0.0"
STEPS_A_BUILD = 3
"""Archived, tabulated, published: simulating itself takes no time."""

T = TypeVar("T")


def demo_runs(settings: Settings, seed: int) -> Comparison:
    """Simulate both builds side by side in the archive of ``settings``, and compare them."""
    known, shown = load_experiments(SHIPPED), current()
    settings.prepare()
    with open_archive(settings) as archive:
        shown.stage("both builds", 2 * STEPS_A_BUILD)
        asked = [SweepRequest(agent="simulated", build=b, seed=seed) for b in (BASELINE, CANDIDATE)]
        folders = [prepare(settings, archive, request, known) for request in asked]

        def sweep(folder: RunFolder) -> None:
            with listening(Silent()):
                sweep_runs(_Counted(settings, shown, folder.document.build), [folder])

        # Validation runs in processes of its own, so two builds side by side use two cores.
        with ThreadPoolExecutor(len(folders)) as pool:
            list(pool.map(sweep, folders))
        shown.stage(f"compare {CANDIDATE} with {BASELINE}", 1)
        compared = judge(Runner(settings), CompareRequest(baseline=BASELINE, candidate=CANDIDATE))
        shown.advance("comparison")
    return compared


class _Counted(Runner):
    """Counts the steps that take long for a listener that hears of both builds."""

    def __init__(self, settings: Settings, listener: Listener, build: str) -> None:
        super().__init__(settings)
        self._listener, self._build = listener, build

    def repeatable(self, name: str, work: Callable[[Archive], T], label: str = "") -> T:
        """What ``work`` gives, counted."""
        result = super().repeatable(name, work, label)
        self._listener.advance(f"{self._build}: {name}")
        return result
