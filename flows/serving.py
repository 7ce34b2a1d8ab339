"""Serving: the launches of one run of experiment E, one fresh server after the other, in one lease."""

from __future__ import annotations

from prefect import flow

from tilewatch.flows.prefect_runner import PrefectRunner
from tilewatch.flows.steps.sweep import launch_servers
from tilewatch.infra import spool
from tilewatch.infra.logs import recorded
from tilewatch.infra.settings import load_settings


@flow(name="serving", flow_run_name="serving {run_id}")
def serving(run_id: str) -> int:
    """Launch what a run in the spool of this host still lacks; returns how many launches completed."""
    settings = load_settings()
    with recorded(settings, run_id=run_id):
        return launch_servers(PrefectRunner(settings), spool.find(settings, run_id))
