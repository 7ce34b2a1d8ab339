"""A start that never began is a failed start, whatever the exit code of its process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Scheduled

from tilewatch.flows.agents import refusals
from tilewatch.flows.agents.journal import Journal
from tilewatch.flows.agents.worker import MOST_FAILED_STARTS, DeviceWorker
from tilewatch.flows.deployments.runnable import (
    CHECKOUT,
    PULL_STEPS,
    entrypoint,
    job_configuration,
    job_template,
)

POOL = "failed-starts"


async def _polled(folder: Path, polls: int) -> tuple[FlowRun, list[str]]:
    """A run after so many polls of its worker, and its states in order."""
    journal = Journal(folder, "device")
    journal.folder.mkdir()
    async with get_client() as client:
        pool = WorkPoolCreate(name=POOL, type="process", base_job_template=job_template())
        await client.create_work_pool(pool, overwrite=True)
        flow = await client.create_flow_from_name("never-begins")
        deployment = await client.create_deployment(
            flow, "one", work_pool_name=POOL, path=str(CHECKOUT), entrypoint=entrypoint("part"),
            pull_steps=PULL_STEPS,
        )  # fmt: skip
        made = await client.create_flow_run_from_deployment(deployment, state=Scheduled())
        worker = DeviceWorker(journal=journal, device_class="any", work_pool_name=POOL, name="device")
        for _ in range(polls):
            await worker.start(run_once=True)
        run = await client.read_flow_run(made.id)
        states = sorted(await client.read_flow_run_states(made.id), key=lambda state: state.timestamp)
        await client.delete_flow_run(made.id)
    assert journal.runs() == {}
    return run, [state.type.value for state in states]


def test_a_process_that_ends_with_code_0_before_its_flow_begins_is_started_again_and_then_crashed(
    tmp_path: Path, prefect_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "job_configuration", lambda: {**job_configuration(), "command": "true"})
    with temporary_settings({PREFECT_API_URL: prefect_server}):
        run, states = asyncio.run(_polled(tmp_path / "journal", MOST_FAILED_STARTS + 1))
    assert states.count("SCHEDULED") == MOST_FAILED_STARTS + 1 and "RUNNING" not in states
    assert states[-1] == "CRASHED"
    assert run.state is not None and "ended with code 0 before the flow began" in str(run.state.message)
