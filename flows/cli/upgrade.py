"""`tilewatch upgrade` and `tilewatch regression`: what agents and schedules start, by hand."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tilewatch.flows.cli.exits import FailOn, told
from tilewatch.flows.cli.exits import fail_on as fail_if
from tilewatch.flows.cli.output import out
from tilewatch.flows.cli.progress import shown
from tilewatch.infra import prefect_settings
from tilewatch.infra.settings import load_settings
from tilewatch.tasks.plan import choices

if TYPE_CHECKING:
    import pyarrow as pa

    from tilewatch.flows.steps.requests import SweepRequest

Letters = Annotated[list[str] | None, typer.Argument(help="Experiments [default: A B C D].")]
Baseline = Annotated[
    str, typer.Option(help="Build label or run id of before; @baseline is the approved one.")
]
Preset = Annotated[choices.OperatorPreset, typer.Option(help="How much.")]
Agent = Annotated[choices.Agent, typer.Option(help="What executes.")]
Build = Annotated[str | None, typer.Option(help="Label of the build under test.")]
Processes = Annotated[int | None, typer.Option(min=2, max=100, help="Processes per arm.")]
Fail = Annotated[
    list[FailOn] | None,
    typer.Option(help="For CI: exit 4 if a point is SLOWER in two leases. Not comparable is always exit 5."),
]
Arm = Annotated[str | None, typer.Option(help="Measure this arm alone.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to ``app``."""
    app.command()(upgrade)
    app.command()(regression)


def upgrade(
    experiments: Letters = None,
    baseline: Baseline = "@baseline",
    cann: Annotated[str, typer.Option(help="CANN version before, to predict what changes.")] = "",
    to: Annotated[str, typer.Option(help="CANN version after, to predict what changes.")] = "",
    preset: Preset = "quick",
    agent: Agent = "cpu",
    build: Build = None,
    processes: Processes = None,
    arm: Arm = None,
    environment: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=SET_ENV",
            help="Old and new build where both stand on this host, as for `run`: arms of one sweep.",
        ),
    ] = None,
    fail_on: Fail = None,
) -> None:
    """After an upgrade: predict what changes, sweep the new build, compare, and name the three worst points.

    Agents start the same flow by themselves when they see another build.
    """
    with told():
        prefect_settings.apply(load_settings().home)
        from tilewatch.flows.cann_upgrade import cann_upgrade, versions
        from tilewatch.flows.steps.requests import UpgradeRequest
        from tilewatch.flows.sweep import check
        from tilewatch.tasks.measure.environment import parse_environment

        sweep = _asked(experiments, preset, agent, build, processes, arm)
        sides = tuple(parse_environment(text) for text in environment or ())
        asked = UpgradeRequest(
            sweep=sweep.model_copy(update={"environments": sides}), old_cann=cann, new_cann=to,
            baseline=baseline,
        )  # fmt: skip
        check(asked.sweep)
        versions(asked)
        prefect_settings.ready()
        with _told_first(fail_on), shown():
            done = cann_upgrade(asked)
    if done.predicted:
        out.print(f"predicted for CANN {cann} → {to}: {len(done.predicted)} changes (tilewatch predict diff)")
    _show(done.text, done.comparison.rows, fail_on)


def regression(
    experiments: Letters = None,
    baseline: Baseline = "@baseline",
    preset: Preset = "quick",
    agent: Agent = "cpu",
    build: Build = None,
    processes: Processes = None,
    arm: Arm = None,
    fail_on: Fail = None,
) -> None:
    """Measure, compare with the baseline, measure again what is SLOWER, and tell; as schedules do it.

    Fails as "not armed" where nothing is approved, as "not comparable" where an armed point was not compared.
    """
    with told():
        prefect_settings.apply(load_settings().home)
        from tilewatch.flows.regression import regression as watch
        from tilewatch.flows.steps.requests import RegressionRequest
        from tilewatch.flows.sweep import check

        asked = RegressionRequest(
            sweep=_asked(experiments, preset, agent, build, processes, arm), baseline=baseline
        )
        check(asked.sweep)
        prefect_settings.ready()
        with _told_first(fail_on), shown():
            done = watch(asked)
    _show(done.text, done.comparison.rows, fail_on)


@contextmanager
def _told_first(asked: Fail) -> Iterator[None]:
    """Show what a watch told before it ends as not comparable; what got SLOWER is the more urgent ending."""
    from tilewatch.flows.alerts import NotComparableError

    try:
        yield
    except NotComparableError as error:
        _show(error.text, error.rows, asked)
        raise


def _show(text: str, rows: pa.Table, asked: Fail) -> None:
    from tilewatch.flows.alerts import confirmed_slower, plain

    out.print(plain(text), soft_wrap=True, markup=False, highlight=False)
    if confirmed_slower(rows).num_rows:
        fail_if(rows, [what for what in asked or () if what is FailOn.SLOWER])


def _asked(
    experiments: list[str] | None, preset: Preset, agent: Agent, build: Build, processes: Processes, arm: Arm
) -> SweepRequest:
    from tilewatch.flows.steps.requests import SweepRequest

    return SweepRequest(
        experiments=tuple(experiments or ("A", "B", "C", "D")),
        preset=preset,
        agent=agent,
        build=build,
        processes=processes,
        arm=arm,
        command=shlex.join(["tilewatch", *sys.argv[1:]]),
    )
