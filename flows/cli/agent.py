"""`tilewatch agent`: the worker of one device of this host."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tilewatch.flows.cli.exits import FAILED, told
from tilewatch.flows.cli.output import complain, out
from tilewatch.flows.cli.services import AsJson, show_findings
from tilewatch.infra import prefect_settings
from tilewatch.infra.logs import EXTRA_LOGGERS
from tilewatch.infra.services import prefect_server
from tilewatch.infra.settings import load_settings

app = typer.Typer(no_args_is_help=True, help="Work for a device of this host.")


@app.callback()
def _group() -> None:
    pass


@app.command("doctor")
def doctor(as_json: AsJson = False) -> None:
    """Look at what measuring on an NPU needs here; exit 3 where something must be mended."""
    from tilewatch.flows.agents.doctor import diagnose

    with told():
        show_findings(diagnose(load_settings()), as_json, "the npu agent can work here")


@app.command("drain")
def drain(
    wait_s: Annotated[float, typer.Option(min=0, help="Seconds that a run may still take.")] = 3600.0,
) -> None:
    """Before an installation: let the agents of this home begin nothing and wait until nothing runs.

    They stay up and keep what is queued. Exit 1 where something still runs after the wait.
    """
    from tilewatch.flows.agents.journal import hold

    with told():
        settings = load_settings()
        if not hold(settings.home / "agents", wait_s):
            complain(
                f"a run goes on after {wait_s:g} s",
                "The agents stay held; ask again, or: tilewatch agent resume",
            )
            raise typer.Exit(FAILED)
    out.print("nothing runs: install, and then: tilewatch agent resume")


@app.command("resume")
def resume() -> None:
    """After an installation: let the agents go on; each looks at its build first and tells a change."""
    from tilewatch.flows.agents.journal import release

    with told():
        held = release(load_settings().home / "agents")
    out.print("the agents go on" if held else "they were not held")


@app.command("start")
def start(
    device: Annotated[int, typer.Option(min=0, help="Number of the device on this host.")],
    host: Annotated[
        str | None, typer.Option(help="Name of this host in the fleet file [default: its own].")
    ] = None,
    drain_s: Annotated[
        float, typer.Option(min=0, help="Seconds that a run may still take after SIGTERM; then it stops.")
    ] = 20.0,
    watch_s: Annotated[float, typer.Option(min=1, help="Seconds between two looks at the build.")] = 300.0,
) -> None:
    """Run what the Prefect server schedules for one device of this host, until SIGTERM.

    Refuses work for another device class, takes one run at a time, and cleans up after a predecessor that
    died. A changed build is told to the server, which starts the upgrade run.
    """
    with told():
        settings = load_settings()
        settings.prepare()
        os.environ["PREFECT_API_URL"] = prefect_server.require(settings)
        os.environ.setdefault("PREFECT_LOGGING_LEVEL", "INFO")
        os.environ.setdefault(EXTRA_LOGGERS, "tilewatch")
        prefect_settings.apply(settings.home)
        from tilewatch.flows.agents.agent import AgentOptions
        from tilewatch.flows.agents.agent import start as start_agent

        start_agent(settings, AgentOptions(device, drain_s, watch_s, host))
