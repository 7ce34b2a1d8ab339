"""The application: every verb of the product in one place, and what happens when one is interrupted."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from tilewatch.flows.cli import (
    agent,
    baseline,
    collect_guide,
    compare,
    demo,
    deploy,
    ingest,
    predict,
    prune,
    query,
    run,
    services,
    site,
    upgrade,
)
from tilewatch.flows.cli.exits import MEANINGS
from tilewatch.flows.cli.output import out

_EXITS = "  \n".join(f"{code}  {meaning}" for code, meaning in MEANINGS.items())

app = typer.Typer(
    name="tilewatch",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Measure W8A8 operators, archive the evidence, compare builds: is W8A8 faster here, where does "
    "latency jump as M grows, why, and did the new CANN build change it?",
    epilog=f"Exit codes:  \n{_EXITS}",
)
for module in (run, compare, collect_guide, upgrade, query, ingest, prune, deploy, services, site, demo):
    module.register(app)
app.add_typer(predict.app, name="predict")
app.add_typer(baseline.app, name="baseline")
app.add_typer(agent.app, name="agent")


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"tilewatch {version('tilewatch')}")
        raise typer.Exit


@app.callback()
def _main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the console script."""
    app()
