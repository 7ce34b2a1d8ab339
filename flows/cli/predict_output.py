"""How `predict` prints: intervals for a person, rows as JSON or CSV for a program."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import Any

import orjson
import typer

from tilewatch.flows.cli.output import out, show_rows, text
from tilewatch.tasks.predict.questions.boundaries import Interval

Row = dict[str, Any]
IN_THE_TABLE = ("tiling_key", "block_dim", "base_m", "base_n", "base_k", "rounds", "branch", "differs")
"""Columns that a person sees on every row; others stand below the table if they never change."""
COLUMNS = (
    "tiling_key", "block_dim", "base_m", "base_n", "base_k", "m_cnt", "n_cnt", "rounds", "units_per_expert",
    "single_n", "stream_k", "aiv_aic_ratio", "ub_template", "workspace_bytes", "branch",
)  # fmt: skip
IN_WORDS = ("rule", "unknown_reason")


def show_intervals(found: Sequence[Interval], axis: str, title: str, as_json: bool, as_csv: bool) -> None:
    """Print intervals of ``axis``: a table and the rules in words, or one object or line an interval."""
    if not found:
        out.print(f"{title}: no legal {axis} in this range", markup=False)
        return
    rows = [_row(interval, axis) for interval in found]
    if as_json or as_csv:
        print_rows(rows, list(rows[0]), title, as_json, as_csv)
        return
    names = [f"{axis}_from", f"{axis}_to"]
    constant = {name for name in COLUMNS if len({row[name] for row in rows}) == 1}
    below = [name for name in COLUMNS if name in constant and name not in IN_THE_TABLE and len(rows) > 1]
    shown = [name for name in COLUMNS if name not in below and any(row[name] is not None for row in rows)]
    brief = [row | {"differs": _short(i.differs)} for row, i in zip(rows, found, strict=True)]
    print_rows(brief, [*names, *shown, *(["differs"] if len(rows) > 1 else [])], title)
    same = [f"{name} {text(rows[0][name])}" for name in below if rows[0][name] is not None]
    if same:
        out.print(f"everywhere: {', '.join(same)}", markup=False)
    for branch, rule in dict.fromkeys((i.record.branch, i.record.rule) for i in found):
        out.print(f"{branch}: {rule}", markup=False)
    for reason in dict.fromkeys(i.record.unknown_reason for i in found if i.record.unknown_reason):
        out.print(f"not decided by shape: {reason}", markup=False)


def print_rows(
    rows: Sequence[Row], names: Sequence[str], title: str, as_json: bool = False, as_csv: bool = False
) -> None:
    """Rows as a table for a person, as JSON or as CSV; values keep their own types."""
    if as_json:
        print_json(rows)
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        show_rows(names, [[row[name] for name in names] for row in rows], title=title)


def print_json(value: object) -> None:
    """``value`` as indented JSON."""
    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def _row(interval: Interval, axis: str) -> Row:
    record = interval.record
    ends = {f"{axis}_from": interval.start, f"{axis}_to": interval.stop}
    values = {name: getattr(record, name) for name in COLUMNS}
    words = {name: getattr(record, name) for name in IN_WORDS}
    return ends | values | {"differs": ", ".join(interval.differs)} | words


def _short(differs: Sequence[str]) -> str:
    """The columns that differ, and how many others besides; used cores only repeat block_dim here."""
    shown = [name for name in differs if name in COLUMNS]
    others = len([name for name in differs if name not in (*COLUMNS, "used_core_num")])
    return ", ".join(shown) + (f" +{others} more" if others else "")
