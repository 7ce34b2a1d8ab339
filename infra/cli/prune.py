"""`tilewatch prune`: what is old and stands under nothing may go; shown first, deleted when asked."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from infra.cli.exits import told
from infra.cli.output import out, show_rows
from infra.settings import load_settings


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(prune)


def prune(
    older_than: Annotated[float, typer.Option(min=0, metavar="DAYS", help="Runs of at least this age.")],
    raw: Annotated[bool, typer.Option(help="Raw captures go.")] = True,
    tables: Annotated[bool, typer.Option(help="Rows of every table go.")] = False,
    reports: Annotated[bool, typer.Option(help="Reports go.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete; without it nothing is changed.")] = False,
) -> None:
    """Show which old runs may go, and delete them only with `--delete`.

    What an approved baseline or a published comparison stands on always stays. A run without its raw captures
    can no longer be reanalysed.
    """
    from infra.archive import open_archive
    from infra.pipeline.retention import Kind, judged, let_go

    asked: dict[Kind, bool] = {"raw": raw, "tables": tables, "reports": reports}
    kinds = [kind for kind, wanted in asked.items() if wanted]
    with told(), open_archive(load_settings()) as archive:
        verdicts = judged(archive, older_than, time.time())
        rows = [(v.run_id, v.build, v.age_days, v.raw_bytes, v.stays_because or "may go") for v in verdicts]
        show_rows(("run", "build", "days", "raw bytes", "why"), rows, title="Runs, oldest first")
        going = [v for v in verdicts if v.stays_because is None]
        size = sum(v.raw_bytes for v in going) if "raw" in kinds else 0
        text = (
            f"{len(going)} of {len(verdicts)} runs: {', '.join(kinds)}, {size / 1e6:.1f} MB of raw captures"
        )
        if not delete:
            out.print(f"may go: {text}; --delete does it")
            return
        for verdict in going:
            let_go(archive, verdict, kinds)
        out.print(f"gone: {text}")
