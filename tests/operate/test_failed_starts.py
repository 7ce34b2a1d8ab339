"""A start that never began is a failed start, whatever the exit code of its process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Scheduled
from prefect.workers.process import ProcessWorker

from tilewatch.flows.agents.journal import Journal
from tilewatch.flows.agents.worker import MOST_FAILED_STARTS, DeviceWorker

POOL = "failed-starts"


async def _polled(folder: Path, command: str, polls: int) -> tuple[FlowRun, list[str]]:
    """A run whose process is ``command``, after so many polls of its worker, and its states in order."""
    journal = Journal(folder, "device")
    journal.folder.mkdir()
    async with get_client() as client:
        template: dict[str, Any] = ProcessWorker.get_default_base_job_template()
        pool = WorkPoolCreate(name=POOL, type="process", base_job_template=template)
        await client.create_work_pool(pool, overwrite=True)
        flow = await client.create_flow_from_name("never-begins")
        deployment = await client.create_deployment(
            flow, "one", work_pool_name=POOL, path=".", entrypoint="x.py:f"
        )
        made = await client.create_flow_run_from_deployment(
            deployment, state=Scheduled(), job_variables={"command": command}
        )
        worker = DeviceWorker(journal=journal, device_class="any", work_pool_name=POOL, name="device")
        for _ in range(polls):
            await worker.start(run_once=True)
        run = await client.read_flow_run(made.id)
        states = sorted(await client.read_flow_run_states(made.id), key=lambda state: state.timestamp)
        await client.delete_flow_run(made.id)
    assert journal.runs() == {}
    return run, [state.type.value for state in states]


def test_a_process_that_ends_with_code_0_before_its_flow_begins_is_started_again_and_then_crashed(
    tmp_path: Path, prefect_server: str
) -> None:
    with temporary_settings({PREFECT_API_URL: prefect_server}):
        run, states = asyncio.run(_polled(tmp_path / "journal", "true", MOST_FAILED_STARTS + 1))
    assert states.count("SCHEDULED") == MOST_FAILED_STARTS + 1 and "RUNNING" not in states
    assert states[-1] == "CRASHED"
    assert run.state is not None and "ended with code 0 before the flow began" in str(run.state.message)
