"""`tilewatch demo`: two simulated CANN builds through everything, without a device or a server."""

from __future__ import annotations

import shutil
import webbrowser
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewatch.flows.cli.exits import told
from tilewatch.flows.cli.output import out, warn
from tilewatch.flows.cli.progress import shown
from tilewatch.infra.settings import Settings, load_settings
from tilewatch.tasks.measure.program import locks

BASELINE, CANDIDATE = "sim-cann8.5.0", "sim-cann9.0.0"
EXPERIMENTS = ("A", "B", "C", "D")
FOLDER = "demo"
SEED = 17


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(demo)


def demo(
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Print the path of the report and do not open it.")
    ] = False,
    seed: Annotated[int, typer.Option(min=1, help="Seed of the simulated noise.")] = SEED,
) -> None:
    """Take two simulated CANN builds through everything and open the report; a minute, no device.

    CANN 8.5.0 and 9.0.0 on Ascend910_9391, experiments A to D: plan, captures, archive, tables, validation,
    comparison, report. Nothing is measured and every page says SIMULATED. The demo has an archive of its own
    below the home folder, made anew each time.
    """
    with told():
        settings = demo_settings(load_settings())
        settings.home.parent.mkdir(parents=True, exist_ok=True)
        with locks.held(settings.home.with_suffix(".lock"), "demo", _waiting), shown():
            _clear(settings)
            report, sentence = run_demo(settings, seed)
    out.print(f"SIMULATED: {sentence}", soft_wrap=True)
    out.print(f"report: {report}", soft_wrap=True)
    if not no_open:
        webbrowser.open(report.as_uri())


def _waiting(owner: dict[str, Any] | None) -> None:
    warn("waiting for another demo to end")


def _clear(settings: Settings) -> None:
    """Remove what the last demo left, and the store of one that was killed."""
    from tilewatch.infra.services import seaweed

    if settings.home.is_dir():
        seaweed.stop(settings)
        shutil.rmtree(settings.home)


def demo_settings(settings: Settings) -> Settings:
    """The settings with a home and an embedded store of the demo's own: no team's archive is touched."""
    own = {"home": settings.home / FOLDER, "spool": None, "s3_endpoint": None}
    return settings.model_copy(update=own | {"s3_access_key": None, "s3_secret_key": None})


def run_demo(settings: Settings, seed: int) -> tuple[Path, str]:
    """Simulate both builds side by side, compare them; returns the report and its first sentence."""
    from tilewatch.flows.experiments import SHIPPED
    from tilewatch.flows.steps.compare import compare_archived
    from tilewatch.flows.steps.measure import batches, measure_batch
    from tilewatch.flows.steps.prepare import SweepOptions, prepare
    from tilewatch.flows.steps.report import report_run
    from tilewatch.flows.steps.tabulate import tabulate_run
    from tilewatch.infra.archive import Archive, open_archive
    from tilewatch.infra.lease import leased
    from tilewatch.infra.progress import Silent, current, listening
    from tilewatch.infra.raw_zone import archive_run
    from tilewatch.infra.spool import RunFolder
    from tilewatch.tasks.plan.experiment import load_experiments
    from tilewatch.tasks.publish.summary import comparison_summary

    known = load_experiments(SHIPPED)
    shown = current()

    def planned(archive: Archive, build: str) -> RunFolder:
        options = SweepOptions(
            experiments=EXPERIMENTS, preset="quick", agent="simulated", build=build, seed=seed,
            processes=None, axis=None, point=None, arm=None, refine=(), soc="Ascend910_9391", command="",
        )  # fmt: skip
        return prepare(settings, archive, options, known)

    def sweep(archive: Archive, folder: RunFolder) -> None:
        build = folder.document.build
        with listening(Silent()):
            with leased(settings, folder.document) as lease:
                for batch in batches(folder):
                    measure_batch(settings, folder, batch, lease)
            shown.advance(f"{build} simulated")
            stored = archive_run(archive, folder)
            shown.advance(f"{build} archived")
            captures = {letter: [(p, ref.prefix) for p, ref in refs] for letter, refs in stored.items()}
            tabulated = tabulate_run(settings, archive, folder.document, captures)
            shown.advance(f"{build} tabulated")
            report_run(settings, archive, tabulated)
            shown.advance(f"{build} reported")

    settings.prepare()
    with open_archive(settings) as archive:
        shown.stage("both builds", 8)
        folders = [planned(archive, build) for build in (BASELINE, CANDIDATE)]
        # Validation runs in processes of its own, so two builds side by side use two cores.
        with ThreadPoolExecutor(len(folders)) as pool:
            list(pool.map(partial(sweep, archive), folders))
        shown.stage(f"compare {CANDIDATE} with {BASELINE}", 1)
        compared = compare_archived(settings, archive, BASELINE, CANDIDATE)
        shown.advance("comparison")
    return compared.report, comparison_summary(compared.rows).sentence
