"""What a person sees: tables on a terminal, rows as JSON or CSV for a program, messages on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tilewatch.tasks.plain_text import visible
from tilewatch.tasks.publish.files import table_csv

PIPED_WIDTH = 160


class Terminal(Console):
    """A console that shows characters which would steer the terminal, instead of sending them to it."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Every text that is printed comes by here, cells of tables included."""
        return super().render_str(visible(text), **options)


out = Terminal(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
err = Terminal(stderr=True, highlight=False, width=None if sys.stderr.isatty() else PIPED_WIDTH)
MAX_ROWS_SHOWN = 200


def complain(message: str, hint: str = "") -> None:
    """One error on stderr: what is wrong and what to do."""
    err.print(f"[bold red]error:[/] {escape(message)}", soft_wrap=True)
    if hint:
        err.print(f"[bold]what to do:[/] {escape(hint)}", soft_wrap=True)


def warn(message: str) -> None:
    """One warning on stderr."""
    err.print(f"[bold yellow]warning:[/] {escape(message)}", soft_wrap=True)


def show_table(table: pa.Table, *, title: str = "", as_json: bool = False, as_csv: bool = False) -> None:
    """Print ``table`` for a person, or as JSON (a list of objects), or as CSV with a header."""
    if as_json:
        sys.stdout.write(to_json(table))
    elif as_csv:
        sys.stdout.write(to_csv(table))
    else:
        out.print(_for_people(table, title))
        if table.num_rows > MAX_ROWS_SHOWN:
            out.print(f"… {table.num_rows - MAX_ROWS_SHOWN} more rows; --json or --csv prints all of them")


def to_json(table: pa.Table) -> str:
    """All rows as a JSON list of objects; integers stay exact."""
    body = orjson.dumps(_plain(table), option=orjson.OPT_INDENT_2, default=_json_value)
    return body.decode() + "\n"


def to_csv(table: pa.Table) -> str:
    """All rows as CSV; lists and maps become their JSON, and no text is a formula."""
    return table_csv(table).decode()


def show_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "") -> None:
    """Print plain rows for a person."""
    shown = Table(*columns, title=title or None, title_justify="left", header_style="bold")
    for row in rows:
        shown.add_row(*(escape(text(value)) for value in row))
    out.print(shown)


def text(value: Any) -> str:
    """A value as a person reads it: null is a dash, floats keep four significant digits."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{k}={text(v)}" for k, v in value.items())
    if isinstance(value, list):
        return "[" + ", ".join(text(v) for v in value) + "]"
    return str(value)


def _json_value(value: Any) -> Any:
    """What JSON has no type for: DuckDB's exact sums become numbers, dates become text."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value)


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    maps = {f.name for f in table.schema if pa.types.is_map(f.type)}
    rows: list[dict[str, Any]] = table.to_pylist()
    if maps:
        rows = [{k: dict(v) if k in maps and v is not None else v for k, v in row.items()} for row in rows]
    return rows


def _for_people(table: pa.Table, title: str) -> Table:
    shown = Table(title=title or None, title_justify="left", header_style="bold")
    for field in table.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        shown.add_column(field.name, justify="right" if number else "left", overflow="fold")
    for row in _plain(table.slice(0, MAX_ROWS_SHOWN)):
        shown.add_row(*(escape(text(value)) for value in row.values()))
    return shown
