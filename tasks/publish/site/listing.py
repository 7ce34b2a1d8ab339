"""A page that lists rows: filter, sort, search and turn pages, all of it in the address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from tilewatch.tasks.publish.site.reading import Asked, Reader, filled

Kind = Literal["text", "label", "code", "duration", "ratio", "number", "time", "verdict", "evidence", "state"]
PAGE_ROWS = 100
MAX_PAGE = 100_000


@dataclass(frozen=True)
class Column:
    """A column of a listing: its name in the query, how it is shown, and where its cells lead."""

    name: str
    title: str
    kind: Kind = "text"
    link: str | None = None
    """An address with ``{column}`` in it, for example ``/runs/{run_id}``."""


@dataclass(frozen=True)
class Listing:
    """One page that lists. ``sql`` gives all rows; what was asked for is put around it."""

    path: str
    title: str
    question: str
    """What the page answers, one sentence under the title."""
    sql: str
    columns: tuple[Column, ...]
    filters: tuple[str, ...]
    """Columns with a choice of their values."""
    sort: str
    """Order until another is asked for: SQL behind ORDER BY."""
    empty: str
    """What to do if there is nothing at all."""


@dataclass(frozen=True)
class Listed:
    """The rows of one page of a listing."""

    listing: Listing
    asked: Asked
    rows: list[dict[str, Any]]
    total: int
    page: int
    choices: dict[str, list[str]]

    @property
    def pages(self) -> int:
        """How many pages there are, at least one."""
        return max(-(-self.total // PAGE_ROWS), 1)

    @property
    def sorted_by(self) -> str:
        """The column asked for as order, with ``-`` if descending; empty for the order of the listing."""
        return _sort_of(self.listing, self.asked)[0]

    def link(self, column: Column, row: Mapping[str, Any]) -> str | None:
        """Where a cell leads, or None."""
        return filled(column.link, row) if column.link else None

    def sort_address(self, column: Column) -> str:
        """The address that sorts by ``column``: descending first, then ascending."""
        wanted = column.name if self.sorted_by == f"-{column.name}" else f"-{column.name}"
        return self.asked.address(sort=wanted, page=None)


def listed(listing: Listing, reader: Reader, asked: Asked) -> Listed:
    """One page of ``listing`` as ``asked``; unknown columns in the address are ignored."""
    where, parameters = _where(listing, asked)
    page = asked.number("page", 1, 1, MAX_PAGE)
    rows = reader.query(
        f"SELECT *, count(*) OVER () AS total_rows FROM ({listing.sql}) {where} "
        f"ORDER BY {_sort_of(listing, asked)[1]} LIMIT {PAGE_ROWS} OFFSET {(page - 1) * PAGE_ROWS}",
        parameters,
    ).to_pylist()
    total = int(rows[0]["total_rows"]) if rows else 0
    return Listed(listing, asked, rows, total, page, _choices(listing, reader))


def everything(listing: Listing, reader: Reader, asked: Asked) -> pa.Table:
    """All rows that the address asks for, for JSON and CSV."""
    where, parameters = _where(listing, asked)
    order = _sort_of(listing, asked)[1]
    return reader.query(f"SELECT * FROM ({listing.sql}) {where} ORDER BY {order}", parameters)


def _where(listing: Listing, asked: Asked) -> tuple[str, dict[str, str]]:
    parameters = {name: asked.get(name) for name in listing.filters if asked.get(name)}
    conditions = [f'CAST("{name}" AS VARCHAR) = ${name}' for name in parameters]
    if search := asked.get("q"):
        text = [c.name for c in listing.columns if c.kind in ("text", "label", "code", "verdict", "state")]
        cells = " || ' ' || ".join(f"coalesce(CAST(\"{name}\" AS VARCHAR), '')" for name in text)
        conditions.append(f"contains(lower({cells}), lower($q))")
        parameters["q"] = search
    return ("WHERE " + " AND ".join(conditions) if conditions else ""), parameters


def _sort_of(listing: Listing, asked: Asked) -> tuple[str, str]:
    wanted = asked.get("sort")
    name = wanted.removeprefix("-")
    if name not in {column.name for column in listing.columns}:
        return "", listing.sort
    return wanted, f'"{name}" {"DESC" if wanted.startswith("-") else "ASC"} NULLS LAST, {listing.sort}'


def _choices(listing: Listing, reader: Reader) -> dict[str, list[str]]:
    """The values that each filter has in all rows, at most 200 each."""
    if not listing.filters:
        return {}
    sets = ", ".join(f'list(DISTINCT CAST("{name}" AS VARCHAR)) AS "{name}"' for name in listing.filters)
    row = reader.query(f"SELECT {sets} FROM ({listing.sql})").to_pylist()[0]
    return {name: sorted(v for v in row[name] or () if v is not None)[:200] for name in listing.filters}
