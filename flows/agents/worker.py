"""The worker of one device: a Prefect process worker that knows its device class and can be drained."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any
from uuid import UUID

import anyio
from prefect.exceptions import Abort, ObjectNotFound
from prefect.flows import load_flow_from_entrypoint
from prefect.runner._flow_run_executor import FlowRunExecutorContext
from prefect.runner._starter_engine import EngineCommandStarter
from prefect.states import Pending, Scheduled
from prefect.utilities.engine import propose_state
from prefect.workers.process import ProcessWorker, ProcessWorkerResult

from tilewatch.flows.agents.journal import ASKED, TAKEN, Journal
from tilewatch.flows.agents.refusals import ENTRYPOINT, DeviceJobConfiguration
from tilewatch.infra.errors import ServiceError
from tilewatch.infra.fleet_names import class_of

if TYPE_CHECKING:
    import anyio.abc
    from prefect.client.orchestration import PrefectClient
    from prefect.client.schemas.objects import FlowRun, State
    from prefect.runner._flow_run_executor import FlowRunExecutionResult
    from prefect.runner._process_manager import ProcessHandle
    from prefect.workers.process import ProcessJobConfiguration


MOST_FAILED_STARTS = 3
"""A run whose process ends before the flow begins is not started for ever."""

# It takes the place of the plain process worker in Prefect's registry of this process, which is meant.
warnings.filterwarnings("ignore", message="Type 'DeviceWorker'")


class WrongDeviceError(ServiceError):
    """A run, or a place in the fleet, that is meant for devices of another class."""


class DeviceWorker(ProcessWorker):
    """Runs one flow run at a time on one device and keeps a journal of it.

    A run whose tags name another device class ends as Crashed with a WrongDeviceError; nothing is measured.
    One that asks for another program, folder or environment ends as Crashed with a RefusedRunError.
    """

    job_configuration = DeviceJobConfiguration

    def __init__(self, *, journal: Journal, device_class: str, **rest: Any) -> None:
        super().__init__(limit=1, create_pool_if_not_found=False, **rest)
        self._journal = journal
        self._device_class = device_class
        self._failed_starts: dict[UUID, int] = {}
        self.accepting = True
        """False while nothing new may be started: the agent drains, or looks at the build."""

    @property
    def busy(self) -> bool:
        """Whether a flow run is being started or runs."""
        return bool(self._submitting_flow_run_ids) or bool(self._limiter and self._limiter.borrowed_tokens)

    async def setup(self) -> None:
        """Get ready, and say so in the journal."""
        await super().setup()
        self._journal.ready.touch()

    async def get_and_submit_flow_runs(self) -> list[FlowRun]:
        """Take what is due, unless nothing new may be started."""
        await self._give_back_unstarted()
        if not self.accepting or self._journal.held():
            return []
        return await super().get_and_submit_flow_runs()

    async def _propose_pending_state(self, flow_run: FlowRun) -> bool:
        """As Prefect does it, with a note before and after: who dies in between leaves the run in Pending.

        Where the server does not answer it may have given the run all the same; that is looked up later.
        """
        run_id = str(flow_run.id)
        self._journal.claim(run_id, ASKED)
        try:
            pending: State[object] = Pending(message=taken_by(self._journal))
            state = await propose_state(self.client, pending, flow_run_id=flow_run.id)
        except Abort as refused:
            self._logger.info("flow run %s is not for this worker: %s", run_id, refused)
            self._journal.end(run_id)
            return False
        except Exception as error:
            self._logger.warning("the server did not answer for flow run %s: %s", run_id, error)
            return False
        if not state.is_pending():
            self._journal.end(run_id)
            return False
        self._journal.claim(run_id, TAKEN)
        return True

    async def _give_back_unstarted(self) -> None:
        """Queue again what was asked for or taken and is not being started by this worker any more."""
        for run_id, noted in self._journal.runs().items():
            if noted[0] or UUID(run_id) in self._submitting_flow_run_ids:
                continue
            with contextlib.suppress(ObjectNotFound):
                run = await self.client.read_flow_run(UUID(run_id))
                await give_back(self.client, self._journal, run, noted)
            self._journal.end(run_id)

    async def run(
        self,
        flow_run: FlowRun,
        configuration: ProcessJobConfiguration,
        task_status: anyio.abc.TaskStatus[int] | None = None,
    ) -> ProcessWorkerResult:
        """Run one flow run as a process. Raises WrongDeviceError for a run of another device class."""
        noted = _Noted(task_status, self._journal, str(flow_run.id))
        try:
            wanted = class_of(flow_run.tags)
            if wanted not in (None, self._device_class):
                raise WrongDeviceError(f"this run is for {wanted}, and this device is {self._device_class}")
            result = await _run_own_flow(flow_run, configuration, noted)
        finally:
            self._journal.end(str(flow_run.id))
        if result.status_code:
            self._failed_starts[flow_run.id] = self._failed_starts.get(flow_run.id, 0) + 1
        else:
            await self._began(flow_run)
        return result

    async def _began(self, flow_run: FlowRun) -> None:
        """Take a run whose process ended well and that is still Pending for a failed start: nothing began.

        It would hold the queue of the device. Where the server does not answer, the journal keeps the run and
        it is given back later.
        """
        run_id = str(flow_run.id)
        try:
            now = await self.client.read_flow_run(flow_run.id)
        except ObjectNotFound:
            return
        except Exception as error:
            self._logger.warning("the server did not answer for flow run %s: %s", run_id, error)
            self._journal.claim(run_id, TAKEN)
            return
        if now.state is not None and now.state.is_pending():
            self._failed_starts[flow_run.id] = self._failed_starts.get(flow_run.id, 0) + 1
            await self._propose_crashed_state(flow_run, "its process ended with code 0 before the flow began")

    async def _propose_crashed_state(
        self, flow_run: FlowRun, message: str, client: PrefectClient | None = None
    ) -> None:
        if not await self._queued_again(flow_run):
            await super()._propose_crashed_state(flow_run, message, client)

    async def _queued_again(self, flow_run: FlowRun) -> bool:
        """Queue a run again whose process ended before its flow began: the server was away at that moment."""
        if not 0 < self._failed_starts.get(flow_run.id, 0) <= MOST_FAILED_STARTS:
            return False
        now = await self.client.read_flow_run(flow_run.id)
        if now.state is None:
            return False
        if not now.state.is_pending() and (now.run_count or not now.state.is_crashed()):
            return False
        again: State[object] = Scheduled(message="its process ended before it began; it is started again")
        await self.client.set_flow_run_state(flow_run.id, again, force=True)
        return True


async def _run_own_flow(
    flow_run: FlowRun, configuration: ProcessJobConfiguration, noted: _Noted
) -> ProcessWorkerResult:
    """Run the flow of this checkout that the configuration names, in a process of its own session.

    As Prefect's own worker does it, without its look at the deployment's path and steps: whoever changes
    them on the server after they were looked at changes nothing here.
    """
    entrypoint = str(configuration.env[ENTRYPOINT])

    async def own_flow(_: FlowRun) -> Any:
        return load_flow_from_entrypoint(entrypoint)

    async with FlowRunExecutorContext() as context:
        starter = EngineCommandStarter(
            command=configuration.command,
            cwd=configuration.working_dir,
            env=configuration.env,
            stream_output=configuration.stream_output,
            control_channel=context.control_channel,
            isolate_process_group=True,
            env_overrides_settings=True,
        )
        executor = context.create_executor(flow_run, starter, resolve_flow=own_flow, propose_submitting=False)
        async with anyio.create_task_group() as group:
            done: list[FlowRunExecutionResult | None] = []

            async def execute(*, task_status: anyio.abc.TaskStatus[ProcessHandle]) -> None:
                done.append(await executor.submit(task_status=task_status))

            handle = await group.start(execute)
            noted.started(int(handle.pid))
    (ended,) = done
    if ended is None or ended.status_code is None:
        raise ServiceError(f"the process of flow run {flow_run.id} did not start")
    return ProcessWorkerResult(status_code=ended.status_code, identifier=str(handle.pid))


def taken_by(journal: Journal) -> str:
    """Message of the state in which the agent of this journal takes a run: tells whose it is."""
    return f"taken by {journal.queue} of {journal.folder}"


async def give_back(client: PrefectClient, journal: Journal, run: FlowRun, noted: tuple[int, int]) -> None:
    """Queue a run again that waits in Pending for a process which its agent did not start.

    ``noted`` is what the journal has of it. A run that was only ASKED for may be another worker's.
    """
    if run.state is None or not run.state.is_pending():
        return
    if noted == TAKEN or run.state.message == taken_by(journal):
        again: State[object] = Scheduled(message="it was taken and not started; it is queued again")
        await client.set_flow_run_state(run.id, again, force=True)


class _Noted:
    """Writes the process of a flow run into the journal when it has started, and passes the word on."""

    def __init__(self, inner: Any, journal: Journal, run_id: str) -> None:
        self._inner, self._journal, self._run_id = inner, journal, run_id

    def started(self, pid: int) -> None:
        """Called by the process worker with the pid."""
        self._journal.begin(self._run_id, pid)
        if self._inner is not None:
            self._inner.started(pid)
