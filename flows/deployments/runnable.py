"""What an agent runs, and as what: the flows of its own checkout, started in one way alone.

The server holds names of flows and their parameters. Commands, folders, environments and steps before a flow
are written there so that a person sees them; an agent takes them from here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
FLOW_NAMES = ("sweep", "part", "regression", "cann_upgrade", "compare", "ingest", "reanalyse")
PULL_STEPS: list[dict[str, Any]] = [
    {"prefect.deployments.steps.set_working_directory": {"directory": str(CHECKOUT)}}
]


def entrypoint(flow: str) -> str:
    """Where the flow of that name is in the checkout, as ``module path:flow``."""
    return f"flows/{flow}.py:{flow}"


ENTRYPOINTS = frozenset(entrypoint(flow) for flow in FLOW_NAMES)


def job_configuration() -> dict[str, Any]:
    """How the process of a flow run is started; a command that is null is the agent's own interpreter."""
    return {
        "command": None,
        "env": {},
        "labels": {},
        "name": None,
        "stream_output": True,
        "working_dir": str(CHECKOUT),
    }


def job_template() -> dict[str, Any]:
    """Template of every work pool: nothing in it varies, so the server itself refuses job variables."""
    return {
        "job_configuration": job_configuration(),
        "variables": {"type": "object", "properties": {}, "additionalProperties": False},
    }
