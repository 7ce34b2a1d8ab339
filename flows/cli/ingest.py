"""`tilewatch ingest`: existing profiler and log folders into the archive."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePosixPath
from typing import Annotated

import orjson
import pyarrow.compute as pc
import typer

from tilewatch.flows.cli.exits import FAILED, told
from tilewatch.flows.cli.output import complain, out, show_rows, show_table
from tilewatch.flows.cli.progress import shown
from tilewatch.flows.steps.ingest import IngestedFiles, IngestReport, ingest_paths
from tilewatch.infra.archive import Archive, open_archive
from tilewatch.infra.settings import load_settings


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(ingest)


def ingest(
    paths: Annotated[
        list[Path], typer.Argument(exists=True, help="Folders, files or archives (.tar.gz, .zip).")
    ],
    build: Annotated[
        str | None, typer.Option(help="Label of the build, where the files do not say it [default: unknown].")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and account for everything, store nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the account as JSON.")] = False,
) -> None:
    """Make captures of existing profiler output, plog trees or serving results; store and read them.

    Recognises `*_ascend_pt`, `PROF_*`, `OPPROF_*`, plog trees and benchmark JSON lines. Prints for every file
    the rows read, the rows refused and why, and the self-checks. The same bytes again store nothing; a
    capture that cannot be stored whole is named, and the others are stored.
    """
    with told():
        settings = load_settings()
        opened: AbstractContextManager[Archive | None]
        opened = nullcontext(None) if dry_run else open_archive(settings)
        with opened as archive, shown():
            report = ingest_paths(settings, archive, paths, build)
    if as_json:
        sys.stdout.write(orjson.dumps(_plain(report), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        _show(report, dry_run)
    if report.failed:
        complain(
            f"{len(report.failed)} captures could not be stored", "the others are; see the reasons above"
        )
        raise typer.Exit(FAILED)
    if not report.captures:
        complain("nothing was recognised", "tilewatch ingest --help lists what is")
        raise typer.Exit(FAILED)


def _show(report: IngestReport, dry_run: bool) -> None:
    for files in report.captures:
        place = f" from {files.capture.path}" if files.capture.path else ""
        named = f"capture {files.capture.capture_id}, build {files.capture.build}{place}"
        out.print(f"{named}: {_state(files, dry_run)}")
        folder = _common_folder([file.file for file in files.account])
        title = f"Files below {folder}" if folder else ""
        show_rows(("file", "rows", "refused", "why, or note"), list(_account(files, folder)), title=title)
        if files.refused_by_validation:
            out.print(f"{files.refused_by_validation} rows were refused by validation")
        if files.checks.num_rows:
            shown_columns = ["rule", "success", "row_count", "failed_count", "detail"]
            show_table(files.checks.select(shown_columns), title="Self-checks")
            failed = files.checks.filter(pc.invert(files.checks["success"])).num_rows
            out.print(f"{files.checks.num_rows - failed} of {files.checks.num_rows} self-checks hold")
    if report.skipped:
        show_rows(("not taken", "why"), [(s.name, s.reason) for s in report.skipped])
    if report.answers:
        rows = [(a.question, "yes" if a.answered else "no", a.found, a.setting) for a in report.answers]
        show_rows(("what these files answer", "", "found", "to get it"), rows)
    if report.failed:
        show_rows(("not stored", "why"), [(f.name, f.reason) for f in report.failed])


def _state(files: IngestedFiles, dry_run: bool) -> str:
    if files.held_by is not None:
        return f"not stored, capture {files.held_by} holds all of its files already"
    if not files.created:
        return "was there already"
    return "not stored (dry run)" if dry_run else "stored"


def _common_folder(names: list[str]) -> str:
    """The folder that all files are in, ending with a slash: said once, it leaves the names their width."""
    common = os.path.commonpath([PurePosixPath(name).parent for name in names]) if names else ""
    return f"{common}/" if common not in ("", ".") else ""


def _account(files: IngestedFiles, folder: str) -> Iterator[tuple[str, str, str, str]]:
    for file in files.account:
        rows = ", ".join(f"{n} {table}" for table, n in file.rows.items()) or "–"
        reasons = ", ".join(f"{n} × {rule}" for rule, n in file.reasons.items())
        why = "; ".join(filter(None, (reasons, file.note)))
        # Without a common folder there is nothing to shorten.
        yield file.file.removeprefix(folder), rows, str(file.quarantined), why.replace(folder or "\n", "")


def _plain(report: IngestReport) -> dict[str, object]:
    """Everything that the text says."""
    captures = [
        {
            "capture_id": files.capture.capture_id,
            "build": files.capture.build,
            "path": files.capture.path,
            "raw_prefix": files.raw_prefix,
            "created": files.created,
            "held_by": files.held_by,
            "refused_by_validation": files.refused_by_validation,
            "files": [dataclasses.asdict(file) for file in files.account],
            "self_checks": files.checks.to_pylist(),
        }
        for files in report.captures
    ]
    return {
        "captures": captures,
        "not_taken": [dataclasses.asdict(skipped) for skipped in report.skipped],
        "answers": [dataclasses.asdict(answer) for answer in report.answers],
        "not_stored": [dataclasses.asdict(failed) for failed in report.failed],
    }
