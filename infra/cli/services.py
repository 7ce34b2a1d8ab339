"""Local services: `up`, `down`, `status`, and `doctor`, which says what is wrong with settings and stores."""

from __future__ import annotations

import sys
from typing import Annotated

import orjson
import typer

from infra.cli.exits import ENVIRONMENT, told
from infra.cli.output import complain, out, show_rows
from infra.settings import load_settings

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to ``app``."""
    app.command()(up)
    app.command()(down)
    app.command()(status)
    app.command()(doctor)


def up() -> None:
    """Start this machine's object store in the background and keep it until `tilewatch down`.

    Without `up` every command starts the store for itself and stops it afterwards.
    """
    from infra.services import seaweed

    with told():
        settings = load_settings()
        if settings.s3_endpoint is not None:
            out.print(f"nothing to start: the store is {settings.s3_endpoint} by setting")
            return
        settings.prepare()
        endpoint = seaweed.ensure_running(settings)
        state = seaweed.status(settings)
        out.print(f"object store: {endpoint.url}, bucket {endpoint.bucket}, pid {state.pid}")
        out.print(f"data: {state.data_folder}", soft_wrap=True)
        out.print("stop it with: tilewatch down")


def down() -> None:
    """Stop this machine's object store. Data stays."""
    from infra.services import seaweed

    with told():
        out.print("stopped" if seaweed.stop(load_settings()) else "nothing was running")


def status(as_json: AsJson = False) -> None:
    """Show whether this machine's object store runs, and where."""
    from infra.services import seaweed

    with told():
        settings = load_settings()
        state = seaweed.status(settings)
        external = settings.s3_endpoint
        rows = [
            ("object store", "external" if external else "running" if state.running else "not running"),
            ("address", external or state.url or None),
            ("kept by `up`", state.kept),
            ("pid", state.pid or None),
            ("data", str(state.data_folder)),
            ("log", str(state.log)),
            ("spool", str(settings.spool_folder)),
        ]
        if as_json:
            sys.stdout.write(orjson.dumps(dict(rows), option=orjson.OPT_INDENT_2).decode() + "\n")
        else:
            show_rows(("what", "state"), rows)


def doctor(as_json: AsJson = False) -> None:
    """Look at settings, interpreter, disk and store; exit 3 where something must be mended."""
    from infra.doctor import diagnose

    with told():
        findings = diagnose(load_settings())
    if as_json:
        body = [{"name": f.name, "level": f.level, "what": f.what, "fix": f.fix} for f in findings]
        sys.stdout.write(orjson.dumps(body, option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        show_rows(("check", "", "found", "what to do"), [(f.name, f.level, f.what, f.fix) for f in findings])
    if any(f.level == "fail" for f in findings):
        complain("something must be mended before tilewatch can work here")
        raise typer.Exit(ENVIRONMENT)
