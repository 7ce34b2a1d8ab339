"""Local services: `up`, `down`, `status`, and `doctor`, which says what is wrong with settings and stores."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from tilewatch.flows.cli.exits import ENVIRONMENT, told
from tilewatch.flows.cli.output import complain, out, show_rows
from tilewatch.infra import prefect_settings
from tilewatch.infra.errors import ServiceError
from tilewatch.infra.logs import log_file
from tilewatch.infra.settings import Settings, load_settings

if TYPE_CHECKING:
    from tilewatch.flows.deployments.fleet import Device
    from tilewatch.infra.doctor import Finding

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to ``app``."""
    app.command()(up)
    app.command()(down)
    app.command()(status)
    app.command()(doctor)


def up(
    fleet: Annotated[
        Path | None,
        typer.Argument(
            help="Fleet file to deploy; an agent is started for each of its devices of this host."
        ),
    ] = None,
    store_only: Annotated[
        bool, typer.Option("--store-only", help="Start the object store alone, no Prefect server.")
    ] = False,
) -> None:
    """Start object store, Prefect server and agents in the background, until `tilewatch down`.

    Without `up` every command starts what it needs for itself and stops it afterwards. All of it listens on
    loopback only. Where PREFECT_API_URL or an external store is set, that one is used and none is started.
    """
    with told():
        settings = load_settings()
        settings.prepare()
        _up_store(settings)
        if not store_only:
            _up_prefect(settings, fleet)
        out.print("stop it with: tilewatch down")


def _up_store(settings: Settings) -> None:
    from tilewatch.infra.services import seaweed

    if settings.s3_endpoint is not None:
        out.print(f"object store: {settings.s3_endpoint} by setting")
        return
    endpoint = seaweed.ensure_running(settings)
    state = seaweed.status(settings)
    out.print(f"object store: {endpoint.url}, bucket {endpoint.bucket}, pid {state.pid}")
    out.print(f"data: {state.data_folder}", soft_wrap=True)


def _up_prefect(settings: Settings, fleet: Path | None) -> None:
    """Server, the fleet of this host unless it has one, and the agents of its devices."""
    from tilewatch.infra.services import prefect_server

    api_url = os.environ.get("PREFECT_API_URL") or prefect_server.ensure_running(settings)
    os.environ["PREFECT_API_URL"] = api_url
    out.print(f"Prefect server: {api_url}, UI at {api_url.removesuffix('/api')}")
    out.print("its login: tilewatch status --login")
    prefect_settings.apply(settings.home)
    from tilewatch.flows.agents import device_agent

    for device in _deployed_here(settings, fleet):
        device_agent.ensure_running(settings, device.device, api_url, device.queue)
        pid = device_agent.agent(settings.home, device.device).state().pid
        out.print(f"agent: {device.queue}, pid {pid}")


def _deployed_here(settings: Settings, path: Path | None) -> list[Device]:
    """Devices of this host on the server, after the fleet file, or that of this host alone, is applied."""
    from tilewatch.flows.deployments.apply import apply, devices_of
    from tilewatch.flows.deployments.check import check_fleet
    from tilewatch.flows.deployments.fleet import read_fleet
    from tilewatch.flows.deployments.local import local_fleet

    host = socket.gethostname()
    if path is not None:
        fleet = read_fleet(path)
        check_fleet(settings, fleet)
        apply(fleet, settings.alert_webhook)
    elif not devices_of(host):
        apply(local_fleet(settings), settings.alert_webhook)
    return devices_of(host)


def down() -> None:
    """Stop what `tilewatch up` started: the agents after their runs, the server, the store. Data stays."""
    from tilewatch.flows.agents import device_agent
    from tilewatch.infra.services import prefect_server, seaweed

    with told():
        settings = load_settings()
        stopped = [
            *(one.stop(device_agent.STOP_TIMEOUT_S) for one in device_agent.agents(settings.home).values()),
            prefect_settings.server(settings.home).stop(prefect_server.STOP_TIMEOUT_S),
            seaweed.stop(settings),
        ]
        out.print("stopped" if any(stopped) else "nothing was running")


def status(
    as_json: AsJson = False,
    login: Annotated[
        bool,
        typer.Option("--login", help="Print how to log into the page of this home's own Prefect server."),
    ] = False,
) -> None:
    """Show what runs on this machine: object store, Prefect server, agent; and how much is archived."""
    from tilewatch.infra.services import seaweed

    with told():
        settings = load_settings()
        if login:
            _show_login(settings)
            return
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
            *_prefect_rows(settings),
            ("event log", str(log_file(settings))),
            *(_counts(settings) if external or state.running else ()),
        ]
        if as_json:
            sys.stdout.write(orjson.dumps(dict(rows), option=orjson.OPT_INDENT_2).decode() + "\n")
        else:
            show_rows(("what", "state"), rows)


def _show_login(settings: Settings) -> None:
    """Page and login of the own server; to stdout alone, which no log keeps."""
    from tilewatch.infra.services.prefect_login import CLIENT_AUTH, own_login

    api_url = prefect_settings.own_api(settings.home)
    if api_url is None:
        raise ServiceError(
            "no Prefect server of this home runs",
            "Start it with `tilewatch up`; a team's server has its own login",
        )
    login = own_login(settings.home)
    for line in (
        f"page: {api_url.removesuffix('/api')}",
        f"password there: {login}",
        f"other programs: PREFECT_API_URL={api_url} {CLIENT_AUTH}={login}",
    ):
        out.print(line, soft_wrap=True, markup=False, highlight=False)


def _counts(settings: Settings) -> list[tuple[str, int | float]]:
    """What was archived and waited for; a store that does not run is not started for it."""
    from tilewatch.infra.archive import open_archive
    from tilewatch.infra.counts import counts_of_site

    with open_archive(settings) as archive:
        return list(counts_of_site(settings, archive).items())


def _prefect_rows(settings: Settings) -> list[tuple[str, str | int | None]]:
    from tilewatch.flows.agents import device_agent
    from tilewatch.infra.services.short_server import healthy

    api_url = os.environ.get("PREFECT_API_URL") or prefect_settings.own_api(settings.home)
    health = "not running" if api_url is None else "running" if healthy(api_url) else "not healthy"
    rows: list[tuple[str, str | int | None]] = [("Prefect server", health), ("Prefect address", api_url)]
    for number, agent in device_agent.agents(settings.home).items():
        rows += [
            (f"agent {number}", "running" if agent.alive() else "not running"),
            (f"agent {number} pid", agent.state().pid if agent.alive() else None),
            (f"agent {number} log", str(agent.log)),
        ]
    return [*rows, *(_seen_rows(settings) if health == "running" else ())]


def _seen_rows(settings: Settings) -> list[tuple[str, str]]:
    """Every agent of the fleet as the server sees it."""
    prefect_settings.apply(settings.home)
    from tilewatch.flows.deployments.agents_seen import agents_seen

    return [(f"queue {one.queue} of pool {one.pool}", one.words) for one in agents_seen()]


def doctor(as_json: AsJson = False) -> None:
    """Look at settings, interpreter, disk and store; exit 3 where something must be mended."""
    from tilewatch.infra.doctor import diagnose

    with told():
        findings = diagnose(load_settings())
    show_findings(findings, as_json, "tilewatch can work here")


def show_findings(findings: list[Finding], as_json: bool, goal: str) -> None:
    """Print what a doctor found; exit 3 where something must be mended before ``goal``."""
    if as_json:
        body = [{"name": f.name, "level": f.level, "what": f.what, "fix": f.fix} for f in findings]
        sys.stdout.write(orjson.dumps(body, option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        show_rows(("check", "", "found", "what to do"), [(f.name, f.level, f.what, f.fix) for f in findings])
    if any(f.level == "fail" for f in findings):
        complain(f"something must be mended before {goal}")
        raise typer.Exit(ENVIRONMENT)
