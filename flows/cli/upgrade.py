"""`tilewatch upgrade`: what an agent starts when the build has changed, by hand."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Literal

import typer

from tilewatch.flows.cli.exits import told
from tilewatch.flows.cli.output import out
from tilewatch.flows.cli.progress import shown
from tilewatch.infra import prefect_settings
from tilewatch.infra.settings import load_settings


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(upgrade)


def upgrade(
    experiments: Annotated[list[str] | None, typer.Argument(help="Experiments [default: A B C D].")] = None,
    baseline: Annotated[
        str, typer.Option(help="Build label or run id of before; @baseline is the approved one.")
    ] = "@baseline",
    cann: Annotated[str, typer.Option(help="CANN version before, to predict what changes.")] = "",
    to: Annotated[str, typer.Option(help="CANN version after, to predict what changes.")] = "",
    preset: Annotated[Literal["smoke", "quick", "full"], typer.Option(help="How much.")] = "quick",
    agent: Annotated[Literal["cpu", "npu", "simulated"], typer.Option(help="What executes.")] = "cpu",
    build: Annotated[str | None, typer.Option(help="Label of the new build.")] = None,
    processes: Annotated[int | None, typer.Option(min=2, max=100, help="Processes per arm.")] = None,
    arm: Annotated[str | None, typer.Option(help="Measure this arm alone.")] = None,
    environment: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=SET_ENV",
            help="Old and new build where both stand on this host, as for `run`: arms of one sweep.",
        ),
    ] = None,
) -> None:
    """After an upgrade: predict what changes, sweep the new build, compare, and name the three worst points.

    Agents start the same flow by themselves when they see another build.
    """
    with told():
        settings = load_settings()
        prefect_settings.apply(settings.home)
        from tilewatch.flows.cann_upgrade import cann_upgrade, versions
        from tilewatch.flows.requests import SweepRequest, UpgradeRequest
        from tilewatch.flows.sweep import check
        from tilewatch.tasks.measure.environment import parse_environment

        sweep = SweepRequest(
            experiments=tuple(experiments or ("A", "B", "C", "D")),
            preset=preset,
            agent=agent,
            build=build,
            processes=processes,
            arm=arm,
            environments=tuple(parse_environment(text) for text in environment or ()),
            command=shlex.join(["tilewatch", *sys.argv[1:]]),
        )
        request = UpgradeRequest(sweep=sweep, old_cann=cann, new_cann=to, baseline=baseline)
        check(sweep)
        versions(request)
        prefect_settings.ready()
        with shown():
            done = cann_upgrade(request)
    if done.predicted:
        out.print(f"predicted for CANN {cann} → {to}: {len(done.predicted)} changes (tilewatch predict diff)")
    out.print(done.text.strip(), soft_wrap=True, markup=False)
