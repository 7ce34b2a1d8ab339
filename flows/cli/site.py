"""`site`: the results site, read-only, on loopback unless told otherwise."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewatch.flows.cli.exits import told
from tilewatch.flows.cli.output import out
from tilewatch.infra.settings import load_settings

PORT = 8765


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(site)


def site(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = PORT,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. The site has no login: leave it on loopback, behind a proxy."
        ),
    ] = "127.0.0.1",
    public_name: Annotated[
        list[str] | None,
        typer.Option(help="A host name under which a proxy serves it (repeatable); others are refused."),
    ] = None,
) -> None:
    """Serve everything archived as pages: runs, builds, comparisons, points, curves, cliffs, SQL.

    It only reads, and runs until ctrl-C. Every page has its data behind the same path with .json or .csv, and
    what a reader chose is in the address. Example: `tilewatch site`, then open the printed address.
    """
    import uvicorn

    from tilewatch.flows.site.app import create_app
    from tilewatch.infra.archive import open_archive_to_read

    with told(), open_archive_to_read(load_settings()) as archive:
        out.print(
            f"results site: http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}/  (ctrl-C ends it)"
        )
        uvicorn.run(
            create_app(archive, public_name or ()),
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
        )
