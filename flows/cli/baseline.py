"""`tilewatch baseline`: approve a build, and list what was approved by whom."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from tilewatch.flows.cli.exits import told
from tilewatch.flows.cli.output import out, show_table
from tilewatch.infra.settings import load_settings

app = typer.Typer(no_args_is_help=True, help="Approve builds as the baseline that others are held against.")


@app.command("approve")
def approve(
    build: Annotated[str, typer.Argument(help="Build label or run id.")],
    reason: Annotated[str, typer.Option(help="Why it may be the measure of others; kept for ever.")],
    by: Annotated[str | None, typer.Option(help="Who approves [default: the user of this host].")] = None,
) -> None:
    """Make the newest runs of a build the baseline of their device class; earlier ones stay on record.

    `tilewatch compare @baseline CANDIDATE` and the regression flow hold candidates against it. Needs complete
    runs with five processes an arm: the presets quick and full, or `--processes 5`.
    """
    from tilewatch.flows.steps.baselines import approve_build
    from tilewatch.infra.archive import open_archive

    with told():
        settings = load_settings()
        with open_archive(settings) as archive:
            rows = approve_build(archive, build, approved_by=by or getpass.getuser(), reason=reason)
    first = rows.slice(0, 1).to_pylist()[0]
    out.print(f"armed for {first['device_class']}, agent {first['agent']}: {first['name']}", soft_wrap=True)
    out.print(f"{rows.num_rows} points of runs {', '.join(first['run_ids'])}", soft_wrap=True)


@app.command("list")
def listed(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
) -> None:
    """List approved baselines, newest first: who approved which build, when and why, and which are armed."""
    from tilewatch.flows.steps.baselines import approvals
    from tilewatch.infra.archive import open_archive

    with told(), open_archive(load_settings()) as archive:
        show_table(approvals(archive), title="Baselines", as_json=as_json, as_csv=as_csv)
