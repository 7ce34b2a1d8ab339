"""`tilewatch prune`: what is old and stands under nothing may go; shown first, deleted when asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tilewatch.flows.cli.exits import told
from tilewatch.flows.cli.output import out, show_rows
from tilewatch.infra.settings import Settings, load_settings

if TYPE_CHECKING:
    from tilewatch.flows.steps.retention import Kind
    from tilewatch.infra.archive import Archive


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(prune)


def prune(
    older_than: Annotated[float, typer.Option(min=0, metavar="DAYS", help="Runs of at least this age.")],
    raw: Annotated[bool, typer.Option(help="Raw captures go.")] = True,
    tables: Annotated[bool, typer.Option(help="Rows of every table go.")] = False,
    reports: Annotated[bool, typer.Option(help="Reports go.")] = False,
    spool: Annotated[
        bool, typer.Option(help="Run folders in this host's spool go that the archive holds whole.")
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete; without it nothing is changed.")] = False,
) -> None:
    """Show which old runs may go, and delete them only with `--delete`.

    What an approved baseline or a published comparison stands on always stays. A run without its raw captures
    can no longer be reanalysed. `--no-raw --spool` frees this host's disk and touches nothing archived.
    """
    from tilewatch.infra.archive import open_archive

    asked: dict[Kind, bool] = {"raw": raw, "tables": tables, "reports": reports}
    kinds = [kind for kind, wanted in asked.items() if wanted]
    settings, now_s = load_settings(), time.time()
    with told(), open_archive(settings) as archive:
        if spool:
            _of_spool(settings, archive, older_than, now_s, delete)
        if kinds:
            _of_archive(archive, kinds, older_than, now_s, delete)


def _of_spool(
    settings: Settings, archive: Archive, older_than_days: float, now_s: float, delete: bool
) -> None:
    """Before the archive lets go of anything: a copy may go only while the raw zone holds the capture."""
    from tilewatch.flows.steps.spool_retention import clear, clear_leftovers, spooled

    found = list(spooled(settings, archive, older_than_days, now_s))
    rows = [(s.run_id, str(s.path), s.age_days, s.size_bytes, s.stays_because or "may go") for s in found]
    show_rows(("run", "folder", "days", "bytes", "why"), rows, title="Spool of this host")
    going = [one for one in found if one.stays_because is None]
    text = f"{len(going)} of {len(found)} run folders, {sum(s.size_bytes for s in going) / 1e6:.1f} MB"
    if not delete:
        out.print(f"may go: {text}; --delete does it")
        return
    for one in going:
        clear(one)
    left = clear_leftovers(settings, now_s)
    out.print(f"gone: {text}" + (f", and {left} working folders of killed processes" if left else ""))


def _of_archive(
    archive: Archive, kinds: list[Kind], older_than_days: float, now_s: float, delete: bool
) -> None:
    from tilewatch.flows.steps.retention import judged, let_go

    verdicts = judged(archive, older_than_days, now_s)
    rows = [(v.run_id, v.build, v.age_days, v.raw_bytes, v.stays_because or "may go") for v in verdicts]
    show_rows(("run", "build", "days", "raw bytes", "why"), rows, title="Runs, oldest first")
    going = [v for v in verdicts if v.stays_because is None]
    size = sum(v.raw_bytes for v in going) if "raw" in kinds else 0
    text = f"{len(going)} of {len(verdicts)} runs: {', '.join(kinds)}, {size / 1e6:.1f} MB of raw captures"
    if not delete:
        out.print(f"may go: {text}; --delete does it")
        return
    for verdict in going:
        let_go(archive, verdict, kinds)
    out.print(f"gone: {text}")
