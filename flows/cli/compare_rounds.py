"""`tilewatch compare A B` where A and B are results of a serving client: paths, or ingested builds."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import typer

from tilewatch.flows.cli.exits import FAILED, FailOn
from tilewatch.flows.cli.output import out, show_table
from tilewatch.flows.steps.rounds import compare_sides, rounds_at, rounds_of

if TYPE_CHECKING:
    from tilewatch.infra.archive import Archive
    from tilewatch.tasks.analyse.comparison.serving_rounds import RoundsCompared

SHOWN = (
    "verdict", "metric", "base_value", "candidate_value", "ratio", "ratio_low", "ratio_high", "q_value",
    "base_rounds", "candidate_rounds", "verdict_reason",
)  # fmt: skip


def compare_round_paths(base: Path, candidate: Path) -> RoundsCompared | None:
    """Verdicts of the results at two paths; None where a side holds none."""
    return compare_sides(rounds_at(base), rounds_at(candidate), (str(base), str(candidate)))


def compare_round_builds(archive: Archive, base: str, candidate: str) -> RoundsCompared | None:
    """Verdicts of the ingested results of two builds; None where a side has none."""
    return compare_sides(rounds_of(archive, base), rounds_of(archive, candidate), (base, candidate))


def show_rounds(done: RoundsCompared, fail_on: Collection[FailOn], as_json: bool, as_csv: bool) -> None:
    """Print the verdicts, and exit 1 where ``fail_on`` asks for it."""
    if as_json or as_csv:
        show_table(done.rows, as_json=as_json, as_csv=as_csv)
    else:
        for told in done.rows["configuration"].unique().to_pylist():
            rows = done.rows.filter(pc.equal(done.rows["configuration"], told))
            show_table(rows.select(list(SHOWN)), title=told)
        out.print(done.sentence, soft_wrap=True)
    if FailOn.SLOWER in fail_on and "SLOWER" in done.rows["verdict"].to_pylist():
        raise typer.Exit(FAILED)
