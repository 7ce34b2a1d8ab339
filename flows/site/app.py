"""The results site as a Starlette application over an archive. It only reads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from plotly.offline import get_plotlyjs
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.flows.site.raw_files import RawFiles
from tilewatch.infra.archive import Archive
from tilewatch.infra.errors import ObjectMissingError, QueryError, StoreError
from tilewatch.infra.tables.live import LiveTables
from tilewatch.infra.tables.query import Limits
from tilewatch.tasks.publish.files import table_csv
from tilewatch.tasks.publish.site import pages
from tilewatch.tasks.publish.site.listing import everything
from tilewatch.tasks.publish.site.listings import LISTINGS
from tilewatch.tasks.publish.site.pages import Page
from tilewatch.tasks.publish.site.reading import Asked, NotThereError
from tilewatch.tasks.publish.site.render import html_of, json_of

HOSTS = ("127.0.0.1", "localhost", "[::1]")
QUERY_LIMITS = Limits(seconds=30.0, rows=5_000, memory="512MB")
POLL_S = 0.2
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""No script in a page, nothing from another host; plotly writes style elements, so styles may be inline."""
_STATIC = {"site.css": "text/css", "site.js": "text/javascript", "htmx.min.js": "text/javascript"}
_SINGLE: dict[tuple[str, int], Callable[..., Page]] = {
    ("", 0): pages.start_page,
    ("start", 0): pages.start_page,
    ("runs", 1): pages.run_page,
    ("builds", 1): pages.build_page,
    ("points", 3): pages.point_page,
    ("curves", 2): pages.curves_page,
    ("captures", 1): pages.capture_page,
    ("data", 0): pages.data_page,
    ("data", 1): pages.contract_page,
}
"""Pages about one thing: by the first word of the path, and how many names follow it."""


@dataclass(frozen=True)
class Site:
    """What every request is answered from."""

    tables: LiveTables
    raw: RawFiles


@dataclass(frozen=True)
class Address:
    """A path in its parts: unquoted names, and the form asked for (html, json or csv)."""

    path: str
    names: tuple[str, ...]
    form: str


def create_app(archive: Archive, hosts: Sequence[str] = ()) -> Starlette:
    """The site over ``archive``, which must stay open while it runs.

    ``hosts`` are names under which a proxy serves it, beside those of loopback; a request that names another
    host is refused, so that no foreign page reaches the site by a name of its own.
    """
    site = Site(LiveTables(archive.tables), RawFiles(archive.objects))

    async def page(request: Request) -> Response:
        return await _answered(site, request)

    return Starlette(
        routes=[Route("/{path:path}", page, methods=["GET", "HEAD"])],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=[*HOSTS, *hosts], www_redirect=False),
            Middleware(GZipMiddleware, minimum_size=1_000),
        ],
    )


async def _answered(site: Site, request: Request) -> Response:
    address = _address(request.scope["raw_path"].decode("ascii", "replace"))
    asked = Asked(address.path, dict(request.query_params))
    try:
        if address.names[:1] == ("static",):
            response = _static(address.names[1:])
        elif address.names == ("sql",):
            response = await _sql(site, request, asked, address.form)
        elif address.names[:1] == ("captures",) and address.names[2:3] == ("raw",):
            response = await run_in_threadpool(_raw, site, address.names[1], "/".join(address.names[3:]))
        else:
            response = await run_in_threadpool(_page, site, asked, address)
    except (NotThereError, ObjectMissingError) as error:
        response = _failure(asked, 404, "Not there", error)
    except QueryError as error:
        response = _failure(asked, 400, "The request cannot be answered", error)
    except StoreError as error:
        response = _failure(asked, 503, "The store does not answer", error)
    except TilewatchError as error:
        logging.getLogger(__name__).error("%s: %s", request.url.path, error)
        response = _failure(asked, 500, "The page could not be made", error)
    response.headers.update(HEADERS)
    return response


def _address(raw_path: str) -> Address:
    """Parts are split before they are unquoted: a name may hold a slash."""
    path, form = raw_path.split("?")[0], "html"
    for wanted in ("json", "csv"):
        if path.endswith(f".{wanted}") and not path.startswith(("/static/", "/captures/")):
            path, form = path.removesuffix(f".{wanted}"), wanted
    names = tuple(unquote(part) for part in path.split("/") if part)
    return Address(path, names, form)


def _page(site: Site, asked: Asked, address: Address) -> Response:
    if listing := _listing_of(address.names):
        if address.form != "html":
            return _data(everything(listing, site.tables, asked), address.form)
        return _html(pages.listing_page(site.tables, asked, listing), asked)
    first, rest = (address.names[:1] or ("",))[0], address.names[1:]
    make = _SINGLE.get((first, len(rest)))
    if make is None:
        raise NotThereError(f"there is no page {asked.path}")
    page = make(site.tables, asked, *rest)
    if address.form != "html":
        return _data(page.data, address.form)
    if first == "captures":
        page.context.update(site.raw.listed(page.context["capture"]["raw_prefix"]))
    return _html(page, asked)


def _listing_of(names: tuple[str, ...]) -> Any:
    if names[:1] == ("comparisons",) and len(names) == 4:
        return pages.comparison_listing(*names[1:])
    return LISTINGS.get("/" + names[0]) if len(names) == 1 else None


async def _sql(site: Site, request: Request, asked: Asked, form: str) -> Response:
    """The sealed query of `tilewatch query`; ended if the reader goes away or the limits are reached."""
    sql = asked.get("sql").strip()
    context: dict[str, Any] = {
        "limits": QUERY_LIMITS,
        "failure": None,
        "columns": [],
        "rows": [],
        "cut": False,
    }
    data = pa.table({})
    status = 200
    if sql:
        try:
            data = await _while_connected(site, request, sql)
        except QueryError as error:
            if form != "html":
                raise
            context["failure"], status = f"{error} {error.hint}".strip(), 400
        limit = QUERY_LIMITS.rows or data.num_rows
        context |= {"cut": data.num_rows > limit, "columns": data.column_names}
        data = data.slice(0, limit)
        context["rows"] = list(
            zip(*(data.column(i).to_pylist() for i in range(data.num_columns)), strict=True)
        )
    if form != "html":
        return _data(data, form)
    question = "The tables as SQL (DuckDB); it reads them and nothing else."
    return _html(Page("sql.html.j2", "SQL", question, data, context), asked, status)


async def _while_connected(site: Site, request: Request, sql: str) -> pa.Table:
    ends: list[Callable[[], None]] = []
    work = asyncio.create_task(
        run_in_threadpool(site.tables.query_of_a_reader, sql, QUERY_LIMITS, ends.append)
    )
    while not (await asyncio.wait({work}, timeout=POLL_S))[0]:
        if await request.is_disconnected():
            for end in ends:
                end()
            break
    return await work


def _raw(site: Site, capture_id: str, path: str) -> Response:
    page = pages.capture_page(site.tables, Asked("", {}), capture_id)
    file, blocks = site.raw.opened(page.context["capture"]["raw_prefix"], path)
    name = file.path.rsplit("/", 1)[-1].encode("ascii", "replace").decode().replace('"', "_")
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Length": str(file.size_bytes),
        "Content-Encoding": "identity",
    }
    return StreamingResponse(blocks, media_type="application/octet-stream", headers=headers)


def _static(names: tuple[str, ...]) -> Response:
    name = "/".join(names)
    headers = {"Cache-Control": "public, max-age=3600"}
    if name == "plotly.min.js":
        return Response(_plotly(), media_type="text/javascript", headers=headers)
    if name not in _STATIC:
        raise NotThereError(f"there is no file {name}")
    folder = resources.files("tilewatch.tasks.publish.site") / "static"
    return Response((folder / name).read_bytes(), media_type=_STATIC[name], headers=headers)


@cache
def _plotly() -> bytes:
    return str(get_plotlyjs()).encode()


def _data(table: pa.Table, form: str) -> Response:
    if form == "json":
        return Response(json_of(table), media_type="application/json")
    return Response(table_csv(table), media_type="text/csv; charset=utf-8")


def _html(page: Page, asked: Asked, status: int = 200) -> Response:
    headers = {"Cache-Control": "no-cache"}
    return Response(html_of(page, asked), status, media_type="text/html; charset=utf-8", headers=headers)


def _failure(asked: Asked, status: int, title: str, error: TilewatchError) -> Response:
    page = Page("failure.html.j2", title, str(error), pa.table({}), {"hint": error.hint})
    return _html(page, asked, status)
