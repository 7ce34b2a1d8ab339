"""`tilewatch deploy`: make the Prefect server agree with the fleet file."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from tilewatch.flows.cli.exits import told
from tilewatch.flows.cli.output import out, show_rows
from tilewatch.infra import prefect_settings
from tilewatch.infra.services import prefect_server
from tilewatch.infra.settings import load_settings


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(deploy)


def deploy(
    fleet: Annotated[Path, typer.Argument(help="YAML with device classes, their devices and schedules.")],
) -> None:
    """Create or update work pools, queues, deployments and automations of a fleet, any number of times.

    Flows are run from this checkout, which every host of the fleet has at the same path. The whole file is
    checked before anything is applied. Nothing that the file does not name is changed or deleted. With
    TILEWATCH_ALERT_WEBHOOK set, confirmed regressions are told there.
    """
    with told():
        settings = load_settings()
        os.environ["PREFECT_API_URL"] = prefect_server.require(settings)
        prefect_settings.apply(settings.home)
        from tilewatch.flows.agents.journal import Journal
        from tilewatch.flows.deployments.apply import apply
        from tilewatch.flows.deployments.check import check_fleet
        from tilewatch.flows.deployments.fleet import read_fleet

        described = read_fleet(fleet)
        check_fleet(settings, described)
        made = apply(described, settings.alert_webhook)
    rows = [(r.flow, r.name, r.pool, r.queue, r.when) for r in made]
    show_rows(("flow", "deployment", "work pool", "queue", "schedule"), rows)
    here = {device.device: device.queue for one in described.device_classes for device in one.devices
            if device.host == socket.gethostname()}  # fmt: skip
    for number, queue in here.items():
        if Journal(settings.home / "agents", queue).lives():
            out.print(f"agent {queue} runs here and works for its pool within seconds")
        else:
            out.print(
                f"no agent of {queue} runs here: tilewatch agent start --device {number}, or tilewatch up"
            )
    out.print("other hosts: tilewatch agent start --device N, on each")
