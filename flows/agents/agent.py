"""The agent of one device: registers, cleans up, works, watches the build, and drains when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import tempfile
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from httpx import HTTPError
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import State
from prefect.client.schemas.responses import DeploymentResponse
from prefect.events import emit_event
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed, Scheduled

from tilewatch.flows.agents.journal import Journal, end_process
from tilewatch.flows.agents.worker import DeviceWorker, WrongDeviceError, give_back
from tilewatch.infra.builds import PresentBuild, present_build
from tilewatch.infra.errors import ServiceError
from tilewatch.infra.fleet_names import (
    ANALYSIS_QUEUE,
    BUILD_CHANGED,
    OWN_QUEUE,
    class_of,
    device_resource,
    queue_of,
)
from tilewatch.infra.settings import PREFIX, Settings

HOLD_LOOK_S = 0.5
PLACE_LOOK_S = 10.0
"""Between two looks at the pool that the fleet has this device in."""
MOST_STARTS = 30
"""A run that agents keep dying of is not started for ever."""

logger = logging.getLogger("tilewatch")


@dataclass(frozen=True)
class AgentOptions:
    """Which device to work for, and how.

    ``drain_s`` is what a run may still take when the agent has to stop; ``watch_s`` lies between two looks
    at the build.
    """

    device: int
    drain_s: float
    watch_s: float
    host: str | None = None


def start(settings: Settings, options: AgentOptions) -> None:
    """Work for the device until SIGTERM or SIGINT.

    Raises ServiceError where the fleet has no such device, WrongDeviceError where it is of another class,
    MeasureError where the interpreter cannot measure.
    """
    queue = queue_of(options.host or socket.gethostname(), options.device)
    journal = Journal(settings.home / "agents", queue)
    with journal.alone():
        asyncio.run(_Agent(settings, options, queue, journal).work())


class _Agent:
    def __init__(self, settings: Settings, options: AgentOptions, queue: str, journal: Journal) -> None:
        self._settings, self._options, self._queue, self._journal = settings, options, queue, journal

    async def work(self) -> None:
        """Work until told to stop; where the fleet moves the device to another pool, go on there."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        while not stop.is_set():
            await self._work_at_place(stop)

    async def _work_at_place(self, stop: asyncio.Event) -> None:
        async with get_client() as client:
            place = await self._place(client)
            sweep = place.parameters["request"]["sweep"]
            self._choose_device(sweep["agent"])
            self._kind = sweep["agent"]
            self._look = partial(
                present_build, self._settings, sweep["agent"], label=sweep["build"], soc=sweep["soc"]
            )
            found = await asyncio.to_thread(self._look)
            if (wanted := class_of(place.tags)) != found.device_class:
                raise WrongDeviceError(
                    f"the fleet says that {self._queue} is {wanted}, and it is {found.device_class}",
                    "Correct device_class in the fleet file and deploy it again",
                )
            await self._clean_up(client)
            self._note(found)
        tempfile.tempdir = os.environ["TMPDIR"] = str(self._journal.temporary)
        pool = place.work_pool_name or ""
        worker = DeviceWorker(
            journal=self._journal,
            device_class=found.device_class,
            work_pool_name=pool,
            work_queues=[self._queue, ANALYSIS_QUEUE],
            name=self._queue,
        )
        await self._serve(worker, stop, pool)

    def _choose_device(self, agent: str) -> None:
        """Tell the flow runs of this agent, and what they measure with, which device is theirs."""
        number = str(self._options.device)
        os.environ |= {OWN_QUEUE: self._queue, f"{PREFIX}DEVICE": number}
        if agent == "npu":
            os.environ["ASCEND_RT_VISIBLE_DEVICES"] = number

    async def _serve(self, worker: DeviceWorker, stop: asyncio.Event, pool: str) -> None:
        """Run the worker until ``stop``, or until its device is in another pool, and end it.

        When it is to stop, what runs may finish for a while; before a move it may finish, however long.
        """
        working = asyncio.create_task(worker.start(printer=logger.info))
        watching = asyncio.create_task(self._watch(worker))
        told = asyncio.create_task(stop.wait())
        moved = asyncio.create_task(self._moved(worker, pool))
        await asyncio.wait({working, told, moved}, return_when=asyncio.FIRST_COMPLETED)
        await _ended(watching)
        if not working.done() and told.done():
            await self._drain(worker)
        await _ended(moved)
        await _ended(told)
        await _ended(working)

    async def _moved(self, worker: DeviceWorker, pool: str) -> None:
        """Return when the fleet has the device in another pool and nothing runs any more."""
        async with get_client() as client:
            while True:
                await asyncio.sleep(PLACE_LOOK_S)
                with contextlib.suppress(ServiceError, HTTPError):
                    place = await self._place(client)
                    if place.work_pool_name not in (None, pool):
                        logger.info("%s moves from pool %s to %s", self._queue, pool, place.work_pool_name)
                        break
        while worker.busy:
            worker.accepting = False
            await asyncio.sleep(HOLD_LOOK_S)

    async def _place(self, client: PrefectClient) -> DeploymentResponse:
        try:
            return await client.read_deployment_by_name(f"cann_upgrade/{self._queue}")
        except ObjectNotFound:
            raise ServiceError(
                f"the fleet of this server has no device {self._queue}",
                "Add it to the fleet file and run `tilewatch deploy FLEET.yaml`",
            ) from None

    async def _clean_up(self, client: PrefectClient) -> None:
        """End what a predecessor that died left here, and queue its flow runs again: they go on."""
        for run_id, noted in (await asyncio.to_thread(self._journal.clean)).items():
            with contextlib.suppress(ObjectNotFound):
                run = await client.read_flow_run(UUID(run_id))
                if not noted[0]:
                    await give_back(client, self._journal, run, noted)
                    continue
                if run.state is None or run.state.is_completed() or run.state.is_cancelled():
                    continue
                state: State[object] = (
                    Scheduled(message="the agent died; its successor goes on")
                    if run.run_count < MOST_STARTS
                    else Crashed(message=f"the agent died with it {run.run_count} times")
                )
                await client.set_flow_run_state(run.id, state, force=True)
        self._journal.clear()

    async def _drain(self, worker: DeviceWorker) -> None:
        """Take nothing new; let what runs finish, and stop it where it takes longer than it may."""
        worker.accepting = False
        if not await _idle(worker, self._options.drain_s):
            for pid, born in self._journal.runs().values():
                # The flow stops its measuring process; what is measured stays and can be resumed.
                await asyncio.to_thread(end_process, pid, born)
            await _idle(worker, 20)

    async def _watch(self, worker: DeviceWorker) -> None:
        """Look at the build from time to time and when a hold ends, never beside a measurement."""
        while True:
            await self._pause(worker)
            worker.accepting = False
            try:
                if not worker.busy:
                    self._note(await asyncio.to_thread(self._look))
            except Exception as error:
                # An installation under way looks like this; the next look sees its end.
                logger.warning("the build cannot be seen now: %s", error)
            finally:
                worker.accepting = True

    async def _pause(self, worker: DeviceWorker) -> None:
        """Wait until it is time to look, or until a hold ends: only the look lets work begin again."""
        due = asyncio.get_running_loop().time() + self._options.watch_s
        while asyncio.get_running_loop().time() < due:
            await asyncio.sleep(min(HOLD_LOOK_S, self._options.watch_s))
            if self._journal.held():
                worker.accepting = False
                while self._journal.held():
                    await asyncio.sleep(HOLD_LOOK_S)
                return

    def _note(self, found: PresentBuild) -> None:
        """Emit the event where the build is another one than before on the same device.

        The first look only remembers; so does the first one after the fleet gave the device another class or
        agent: what ran there before was no predecessor of this build.
        """
        before = self._journal.known_build()
        kind = {"agent": self._kind, "device_class": found.device_class}
        now = {"build_id": found.build_id, "cann": found.cann, **kind}
        same = all(before.get(name, value) == value for name, value in kind.items())
        if before and same and before["build_id"] != now["build_id"]:
            emit_event(
                event=BUILD_CHANGED,
                resource={"prefect.resource.id": device_resource(self._queue)},
                payload={
                    "old_build_id": before["build_id"],
                    "new_build_id": now["build_id"],
                    "old_cann": before["cann"],
                    "new_cann": now["cann"],
                },
            )
        if before != now:
            self._journal.note_build(now)


async def _ended(task: asyncio.Task[Any]) -> None:
    """Cancel the task unless it is over; an error of its own comes through."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _idle(worker: DeviceWorker, seconds: float) -> bool:
    """Wait until nothing runs; False where it still does after ``seconds``."""
    deadline = asyncio.get_running_loop().time() + seconds
    while worker.busy:
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.1)
    return True
