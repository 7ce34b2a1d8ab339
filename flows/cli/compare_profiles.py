"""`tilewatch compare A B` where A and B are paths of profiles."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tilewatch.flows.cli.exits import FAILED
from tilewatch.flows.cli.output import out, show_table

if TYPE_CHECKING:
    import pyarrow as pa


class FailOn(StrEnum):
    """Verdicts that can end the verb with exit code 1, for CI."""

    SLOWER = "slower"


def compare_two_profiles(
    base: Path,
    candidate: Path,
    rank: int | None,
    overrides: Sequence[str],
    fail_on: FailOn | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Compare, print ten lines (or JSON, or CSV), and exit 1 where ``fail_on`` asks for it."""
    from tilewatch.flows.steps.profiles import compare_paths
    from tilewatch.tasks.publish.profile_report.lines import document, lines

    compared = compare_paths(base, candidate, rank=rank, overrides=overrides)
    if as_json:
        import orjson

        sys.stdout.write(orjson.dumps(document(compared), option=orjson.OPT_INDENT_2).decode() + "\n")
    elif as_csv:
        show_table(compared.rows, as_csv=True)
    else:
        for line in lines(compared):
            out.print(line, soft_wrap=True, markup=False)
    if fail_on is not None and _slower(compared.rows):
        raise typer.Exit(FAILED)


def _slower(rows: pa.Table) -> bool:
    """True if the step, or a group that computes, is SLOWER; communication waits for others."""
    return any(
        row["verdict"] == "SLOWER" and row["kind"] in ("step", "group") and not row["communicates"]
        for row in rows.select(["verdict", "kind", "communicates"]).to_pylist()
    )
