"""A page as HTML, JSON or CSV."""

from __future__ import annotations

import datetime
from typing import Any
from urllib.parse import quote

import orjson
import pyarrow as pa

from tilewatch.tasks.pages import templates
from tilewatch.tasks.plain_text import visible
from tilewatch.tasks.publish.display import NOTHING, digits, duration, ratio
from tilewatch.tasks.publish.site.listing import Column
from tilewatch.tasks.publish.site.pages import Page
from tilewatch.tasks.publish.site.reading import Asked

NAVIGATION = (
    ("/", "Start"),
    ("/runs", "Runs"),
    ("/builds", "Builds"),
    ("/comparisons", "Comparisons"),
    ("/cliffs", "Cliffs"),
    ("/ledger", "Ledger"),
    ("/series", "Series"),
    ("/serving", "Serving"),
    ("/profiles", "Profiles"),
    ("/quarantine", "Quarantine"),
    ("/data", "Data"),
    ("/sql", "SQL"),
)
SHAPES = {
    "SLOWER": "▲",
    "FASTER": "▼",
    "SAME": "=",
    "UNDECIDED": "?",
    "MISSING": "∅",
}
"""A verdict is told by shape as well as by colour."""


def cell(value: Any, kind: str = "text") -> str:
    """One value as a person reads it; control characters become visible."""
    if value is None or value == "":
        return NOTHING
    if kind == "duration":
        return duration(float(value))
    if kind == "ratio":
        return ratio(float(value))
    if kind == "time":
        moment = datetime.datetime.fromtimestamp(int(value) / 1e9, datetime.UTC)
        return moment.strftime("%Y-%m-%d %H:%M UTC")
    if kind == "number" and isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return digits(value) if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"
    if isinstance(value, list):
        return ", ".join(cell(item) for item in value)
    return visible(str(value))


def html_of(page: Page, asked: Asked, user: str | None = None) -> str:
    """The page as HTML. Everything in it that comes from outside is escaped."""
    return _ENVIRONMENT.get_template(page.template).render(
        page=page, asked=asked, navigation=NAVIGATION, user=user, **page.context
    )


def json_of(table: pa.Table) -> bytes:
    """All rows as a JSON list of objects; integers stay exact."""
    maps = {f.name for f in table.schema if pa.types.is_map(f.type)}
    rows = [
        {k: dict(v) if k in maps and v is not None else v for k, v in r.items()} for r in table.to_pylist()
    ]
    return orjson.dumps(rows, default=str)


def _classes(column: Column) -> str:
    if column.kind in ("duration", "ratio", "number"):
        return "number"
    return "label" if column.kind in ("label", "time") else ""


_ENVIRONMENT = templates(
    "tilewatch.tasks.publish.site",
    "templates",
    cell=cell,
    classes=_classes,
    shape=lambda verdict: SHAPES.get(verdict, ""),
    part=lambda text: quote(str(text), safe=""),
)
