"""The agents of a fleet as its server sees them: pool, queue, last heartbeat, what runs there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
    WorkQueueFilter,
    WorkQueueFilterName,
)
from prefect.client.schemas.objects import StateType, WorkPool

from tilewatch.infra.fleet_names import ANALYSIS_QUEUE, POOL_MARK


@dataclass(frozen=True)
class SeenAgent:
    """One device's queue: ``heartbeat_s`` is the age of its agent's last heartbeat, None where none came.

    ``online``: the server counts on it. ``run`` names what runs or is being started in the queue.
    """

    pool: str
    queue: str
    online: bool
    heartbeat_s: float | None
    run: str | None

    @property
    def words(self) -> str:
        """For a person: ``online, last heartbeat 3 s ago, runs sweep A quick``."""
        if self.heartbeat_s is None:
            return "no agent works for it: tilewatch up, or tilewatch agent start, on its host"
        state = "online" if self.online else "offline: start it on its host"
        doing = f"runs {self.run}" if self.run else "idle"
        return f"{state}, last heartbeat {self.heartbeat_s:.0f} s ago, {doing}"


def agents_seen() -> list[SeenAgent]:
    """Every device queue of tilewatch's pools, by pool and name."""
    with get_client(sync_client=True) as client:
        pools = [p for p in client.read_work_pools() if (p.description or "").startswith(POOL_MARK)]
        return [one for pool in sorted(pools, key=lambda p: p.name) for one in _of_pool(client, pool)]


def _of_pool(client: SyncPrefectClient, pool: WorkPool) -> list[SeenAgent]:
    workers = {worker.name: worker for worker in client.read_workers_for_work_pool(pool.name)}
    queues = {queue.name for queue in client.read_work_queues(work_pool_name=pool.name)} - {ANALYSIS_QUEUE}
    seen = []
    for name in sorted(queues):
        worker = workers.get(name)
        beat = worker.last_heartbeat_time if worker else None
        age_s = (datetime.now(UTC) - beat).total_seconds() if beat else None
        online = worker is not None and worker.status.value == "ONLINE"
        seen.append(SeenAgent(pool.name, name, online, age_s, _run(client, pool.name, name)))
    return seen


def _run(client: SyncPrefectClient, pool: str, queue: str) -> str | None:
    working = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING])
    runs = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=working)),
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
        work_queue_filter=WorkQueueFilter(name=WorkQueueFilterName(any_=[queue])),
    )
    return ", ".join(run.name for run in runs) or None
