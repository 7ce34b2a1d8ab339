"""Verbs of the design that are not built yet: they exit 2 and say so."""

from __future__ import annotations

from collections.abc import Callable

import typer

from infra.cli.exits import USAGE
from infra.cli.output import complain

NOT_YET = {
    "demo": "run two simulated CANN builds through everything",
}


def register(app: typer.Typer) -> None:
    """Add the verbs to ``app``."""
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    for name, purpose in NOT_YET.items():
        app.command(name, context_settings=settings, help=f"Not built yet: {purpose}.")(_verb(name, purpose))


def _verb(name: str, purpose: str) -> Callable[[], None]:
    def not_yet() -> None:
        complain(f"`tilewatch {name}` is not built yet; it will {purpose}")
        raise typer.Exit(USAGE)

    return not_yet
