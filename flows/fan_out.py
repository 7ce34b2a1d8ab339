"""Fan-out: deal the blocks of one run to several devices, and deal again what a lost or slow one leaves."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from uuid import UUID

from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Cancelling

from tilewatch.data_contracts.errors import TilewatchError
from tilewatch.flows.part import part
from tilewatch.flows.steps.measure import Batch
from tilewatch.flows.steps.parts import PartError, dealt, publish_document, unclaimed
from tilewatch.flows.steps.requests import PartRequest, SweepRequest
from tilewatch.infra.archive import open_archive
from tilewatch.infra.fleet_names import OWN_QUEUE
from tilewatch.infra.progress import current
from tilewatch.infra.settings import load_settings
from tilewatch.tasks.plan.run_document import RunDocument

MOST_FAILURES = 2
"""A device that failed so often gets no more blocks of this run."""
LOOK_S = 2.0


class FanOutError(TilewatchError):
    """Blocks that none of the devices measured; what others measured is kept, and the run can be resumed."""


@dataclass
class Device:
    """One device and what it has to do: its flow run, its open blocks, when one of them was last finished."""

    queue: str
    run: UUID | None = None
    blocks: list[Batch] = field(default_factory=list)
    moved_s: float = 0.0
    failures: int = 0

    @property
    def free(self) -> bool:
        """Whether it may be given blocks."""
        return self.run is None and self.failures < MOST_FAILURES


def share(document: RunDocument, request: SweepRequest) -> None:
    """Return when every block of the run is measured and claimed. Raises FanOutError where no device can.

    A block stays with its device until that one fails or finishes nothing for ``patience_s``; then it is
    measured anew, as a whole, by another one. Where this flow run occupies one of the devices, that device
    measures its share here.
    """
    dealer = _Dealer(document, request)
    with open_archive(load_settings()) as archive, get_client(sync_client=True) as client:
        publish_document(archive, document)
        total = len(unclaimed(archive, document))
        current().stage("measure on several devices", total)
        try:
            while todo := unclaimed(archive, document):
                current().advance(f"{len(todo)} blocks left", total - len(todo))
                total = len(todo)
                for device in dealer.devices:
                    dealer.look(client, device, todo)
                if not dealer.deal(client, todo):
                    time.sleep(LOOK_S)
        finally:
            for device in dealer.devices:
                dealer.stop(client, device)
    create_table_artifact(
        dealer.log, key="fan-out", description=f"who was given what of run {document.run_id}"
    )


class _Dealer:
    def __init__(self, document: RunDocument, request: SweepRequest) -> None:
        self._document, self._request = document, request
        self.devices = [Device(queue) for queue in dict.fromkeys(request.devices)]
        self.log: list[dict[str, str]] = []

    def look(self, client: SyncPrefectClient, device: Device, todo: list[Batch]) -> None:
        """Notice blocks that were finished, a flow run that ended, and one that finishes nothing."""
        if device.run is None:
            return
        left = [batch for batch in device.blocks if batch in todo]
        if len(left) < len(device.blocks):
            device.blocks, device.moved_s = left, time.monotonic()
        state = client.read_flow_run(device.run).state
        if not left:
            device.run = None
        elif state is not None and state.is_final():
            self._note(device, f"{state.name}: {state.message or ''}"[:200])
            device.run, device.failures = None, device.failures + 1
        elif time.monotonic() - device.moved_s > self._request.patience_s:
            self._note(device, f"finished nothing for {self._request.patience_s:g} s")
            self.stop(client, device)
            device.failures = MOST_FAILURES

    def deal(self, client: SyncPrefectClient, todo: list[Batch]) -> bool:
        """Give open blocks to free devices; True where this device measured some of them meanwhile."""
        held = {batch for device in self.devices if device.run is not None for batch in device.blocks}
        free = [device for device in self.devices if device.free]
        open_blocks = [batch for batch in todo if batch not in held]
        if open_blocks and not free and not held:
            names = ", ".join(f"{b.experiment} block {b.block}" for b in open_blocks)
            raise FanOutError(f"no device could measure {names}: {self.log[-1]['what']}")
        shares = dealt(open_blocks, [device.queue for device in free]) if free else {}
        own: list[PartRequest] = []
        for device in free:
            if not (blocks := shares[device.queue]):
                continue
            self._note(device, " ".join(f"{b.experiment}-{b.block}" for b in blocks))
            request = PartRequest(
                run_id=self._document.run_id,
                blocks=tuple(f"{b.experiment}-{b.block}" for b in blocks),
                queue=device.queue,
                build=self._request.build,
                soc=self._request.soc,
            )
            if device.queue == os.environ.get(OWN_QUEUE):
                own.append(request)
            else:
                device.run = self._start(client, device, request)
                device.blocks, device.moved_s = blocks, time.monotonic()
        for request in own:
            self._here(request)
        return bool(own)

    def stop(self, client: SyncPrefectClient, device: Device) -> None:
        """Cancel what the device still runs of this run."""
        if device.run is None:
            return
        state = client.read_flow_run(device.run).state
        if state is not None and not state.is_final():
            stopped: State[object] = Cancelling() if state.is_running() else Cancelled()
            client.set_flow_run_state(device.run, stopped, force=True)
        device.run, device.blocks = None, []

    def _start(self, client: SyncPrefectClient, device: Device, request: PartRequest) -> UUID:
        try:
            deployed = client.read_deployment_by_name(f"part/{device.queue}")
        except ObjectNotFound:
            raise FanOutError(
                f"the fleet of this server has no device {device.queue}",
                "Add it to the fleet file and run `tilewatch deploy FLEET.yaml`",
            ) from None
        started = client.create_flow_run_from_deployment(
            deployed.id,
            parameters={"request": request.model_dump(mode="json")},
            # A sweep that is started again, because its agent died, finds the parts that it began.
            idempotency_key=f"{request.run_id} {device.queue} {device.failures} {' '.join(request.blocks)}",
        )
        return started.id

    def _here(self, request: PartRequest) -> None:
        device = next(d for d in self.devices if d.queue == request.queue)
        try:
            part(request)
        except PartError as error:
            self._note(device, str(error))
            device.failures += 1

    def _note(self, device: Device, what: str) -> None:
        self.log.append({"device": device.queue, "what": what})
        current().note(f"{device.queue}: {what}")
