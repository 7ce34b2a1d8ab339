"""The agent of one device of this host, started in the background."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from tilewatch.flows.agents.journal import Journal
from tilewatch.infra.errors import ServiceError
from tilewatch.infra.services.background import Background
from tilewatch.infra.settings import Settings

START_TIMEOUT_S = 120.0
# Its own patience with a running measurement, and then the time that stopping it takes.
STOP_TIMEOUT_S = 60.0


def agent(home: Path, device: int) -> Background:
    """The agent's process of this home and device, running or not."""
    return Background(home / "services", f"agent-{device}")


def agents(home: Path) -> dict[int, Background]:
    """Every agent that was started in the background in this home, running or not, by device."""
    found = (path.stem.removeprefix("agent-") for path in (home / "services").glob("agent-*.json"))
    return {number: agent(home, number) for number in sorted(int(n) for n in found if n.isdigit())}


def ensure_running(settings: Settings, device: int, api_url: str, queue: str) -> None:
    """Start the agent unless it runs, and wait until it works for its queue.

    Raises ServiceError with the agent's own words where it ends instead.
    """
    service = agent(settings.home, device)
    if service.alive():
        return
    environment = {**os.environ, "PREFECT_API_URL": api_url, "TILEWATCH_HOME": str(settings.home)}
    for name in ("PREFECT_LOGGING_LEVEL", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    tilewatch = str(Path(sys.executable).with_name("tilewatch"))
    ready = Journal(settings.home / "agents", queue).ready
    ready.unlink(missing_ok=True)
    service.start([tilewatch, "agent", "start", "--device", str(device)], environment)
    deadline = time.monotonic() + START_TIMEOUT_S
    while not ready.exists():
        if not service.alive() or time.monotonic() > deadline:
            reason = service.last_line()
            service.stop(STOP_TIMEOUT_S)
            raise ServiceError(f"the agent of device {device} does not start: {reason}", f"See {service.log}")
        time.sleep(0.2)
