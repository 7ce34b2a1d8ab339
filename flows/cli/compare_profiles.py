"""`tilewatch compare A B` where A and B are paths of profiles."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tilewatch.flows.cli.exits import FAILED, FailOn
from tilewatch.flows.cli.output import out, show_table

if TYPE_CHECKING:
    import pyarrow as pa

    from tilewatch.tasks.analyse.profiles.compare import ProfilesCompared
    from tilewatch.tasks.analyse.profiles.linears import Answer


@dataclass(frozen=True)
class ProfileOptions:
    """What was asked of a comparison of two profiles, as the options of `compare` say it."""

    rank: int | None = None
    overrides: tuple[str, ...] = ()
    fail_on: tuple[FailOn, ...] = ()
    linears: bool = False
    quantise_list: Path | None = None
    page: Path | None = None
    as_json: bool = False
    as_csv: bool = False
    cores: bool = False
    soc: str | None = None
    cann: str | None = None


def compare_two_profiles(base: Path, candidate: Path, asked: ProfileOptions) -> None:
    """Compare, print ten lines (or JSON, or CSV), and exit 1 where ``fail_on`` asks for it."""
    from tilewatch.flows.steps.profiles import compare_paths
    from tilewatch.tasks.publish.profile_report.lines import document, linear_lines, lines

    compared = compare_paths(base, candidate, rank=asked.rank, overrides=asked.overrides)
    answers = linear_answers_of(compared) if asked.linears or asked.quantise_list else None
    if asked.as_json:
        import orjson

        body = orjson.dumps(document(compared, answers), option=orjson.OPT_INDENT_2)
        sys.stdout.write(body.decode() + "\n")
    elif asked.as_csv:
        show_table(compared.rows, as_csv=True)
    else:
        for line in linear_lines(*answers) if answers else lines(compared):
            out.print(line, soft_wrap=True, markup=False)
        for line in core_lines_of(compared, asked.soc, asked.cann) if asked.cores else ():
            out.print(line, soft_wrap=True, markup=False)
    _write(compared, answers, asked)
    if FailOn.SLOWER in asked.fail_on and _slower(compared.rows):
        raise typer.Exit(FAILED)


def core_lines_of(compared: ProfilesCompared, soc: str | None, cann: str | None) -> list[str]:
    """Predicted against observed core counts of both sides, as lines."""
    from tilewatch.tasks.analyse.profiles.predicted_cores import check_cores
    from tilewatch.tasks.publish.profile_report.lines import core_lines

    sides = (("base", compared.base), ("candidate", compared.candidate))
    return [line for name, side in sides for line in core_lines(name, check_cores(side, soc=soc, cann=cann))]


def linear_answers_of(compared: ProfilesCompared) -> tuple[list[Answer], list[str]]:
    """The linears of the base (BF16) against those of the candidate (W8A8)."""
    from tilewatch.tasks.analyse.profiles.linears import linear_answers

    return linear_answers(compared.base, compared.candidate)


def _write(
    compared: ProfilesCompared, answers: tuple[list[Answer], list[str]] | None, asked: ProfileOptions
) -> None:
    """The files that were asked for."""
    if asked.quantise_list is not None and answers is not None:
        from tilewatch.tasks.publish.profile_report.quantise_list import quantise_list

        asked.quantise_list.write_text(quantise_list(answers[0]), encoding="utf-8")
    if asked.page is not None:
        from tilewatch.tasks.publish.profile_report.page import render_profiles

        command = "tilewatch " + shlex.join(sys.argv[1:])
        asked.page.write_text(render_profiles(compared, answers, command=command), encoding="utf-8")
        if not (asked.as_json or asked.as_csv):
            out.print(f"page: {asked.page}", soft_wrap=True, markup=False)


def _slower(rows: pa.Table) -> bool:
    """True if the step, or a group that computes, is SLOWER; communication waits for others."""
    return any(
        row["verdict"] == "SLOWER" and row["kind"] in ("step", "group") and not row["communicates"]
        for row in rows.select(["verdict", "kind", "communicates"]).to_pylist()
    )
