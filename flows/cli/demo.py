"""`tilewatch demo`: two simulated CANN builds through everything, without a device or a server."""

from __future__ import annotations

import shutil
import webbrowser
from typing import Annotated, Any

import typer

from tilewatch.flows.cli.exits import told
from tilewatch.flows.cli.output import out, warn
from tilewatch.flows.cli.progress import shown
from tilewatch.infra.settings import Settings, load_settings
from tilewatch.tasks.measure.program import locks

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
    from tilewatch.flows.steps.demo import demo_runs
    from tilewatch.tasks.publish.summary import comparison_summary

    with told():
        settings = demo_settings(load_settings())
        settings.home.parent.mkdir(parents=True, exist_ok=True)
        with locks.held(settings.home.with_suffix(".lock"), "demo", _waiting), shown():
            _clear(settings)
            done = demo_runs(settings, seed)
    out.print(f"SIMULATED: {comparison_summary(done.rows).sentence}", soft_wrap=True)
    out.print(f"report: {done.report}", soft_wrap=True)
    if not no_open:
        webbrowser.open(done.report.as_uri())


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
