"""Serving: the launches of one run of experiment E, one fresh server after the other, in one lease."""

from __future__ import annotations

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from tilewatch.flows.steps.launch import launch_row, launch_server, present
from tilewatch.infra import spool
from tilewatch.infra.lease import Lease, leased
from tilewatch.infra.logs import recorded
from tilewatch.infra.progress import current
from tilewatch.infra.settings import load_settings
from tilewatch.infra.spool import RunFolder
from tilewatch.tasks.measure.run import Description, Outcome
from tilewatch.tasks.plan.serving_plan import Launch


@flow(name="serving", flow_run_name="serving {run_id}")
def serving(run_id: str) -> int:
    """Launch what the run still lacks; returns how many launches completed.

    Called by flow ``sweep``, and by itself for a run in the spool of this host. A launch that fails is a
    capture like any other, so a server that will not start is not started again and again; one that was
    interrupted has left none, and is the only one that is repeated.
    """
    settings = load_settings()
    folder = spool.find(settings, run_id)
    todo = list(folder.remaining_launches())
    if not todo:
        return 0
    current().stage("serve", len(todo))
    rows = []
    with recorded(settings, run_id=run_id), leased(settings, folder.document) as lease:
        found = present(settings, folder.document)
        for letter, wanted in todo:
            outcome = launch(folder, letter, wanted, lease, found)
            rows.append(launch_row(letter, wanted, outcome))
    create_table_artifact(rows, key="launches", description=f"launches of run {run_id}")
    return sum(row["status"] == "complete" for row in rows)


@task(name="launch", task_run_name="launch {letter} {wanted.name}", cache_policy=NO_CACHE)
def launch(folder: RunFolder, letter: str, wanted: Launch, lease: Lease, found: Description) -> Outcome:
    """One fresh server: started, proved, loaded or profiled, stopped. Its time limit is the plan's."""
    return launch_server(load_settings(), folder, letter, wanted, lease, found)
