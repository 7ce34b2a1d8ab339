"""Prefect automations: runs without a heartbeat are crashed, and a changed build starts the upgrade run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState, RunDeployment
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

from infra.agents.names import BUILD_CHANGED, BUILD_PAYLOAD, device_resource

HEARTBEATS_MISSED = timedelta(seconds=90)
"""Three heartbeats of 30 s: fewer would crash runs that live."""

_ENDED = ("Completed", "Failed", "Cancelled", "Crashed")


def zombies() -> AutomationCore:
    """Crashes a run that sent heartbeats and then neither another one nor an end: its process is dead."""
    return AutomationCore(
        name="tilewatch: a run without heartbeat is crashed",
        description="A killed worker leaves its runs in Running; they would hold their slot for ever.",
        trigger=EventTrigger(
            match={"prefect.resource.id": ["prefect.flow-run.*"]},
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.heartbeat", *(f"prefect.flow-run.{state}" for state in _ENDED)},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=HEARTBEATS_MISSED,
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED, message="no heartbeat: the process or its host is gone"
            )
        ],
    )


def upgrade(queue: str, deployment_id: UUID, request: dict[str, Any]) -> AutomationCore:
    """Runs the upgrade on the device whose build changed, with old and new from the event."""
    from_event = {name: f"{{{{ event.payload.{name} }}}}" for name in BUILD_PAYLOAD}
    return AutomationCore(
        name=f"tilewatch: the build of {queue} changed",
        description="An agent saw another build than before: measure it and compare it with the baseline.",
        trigger=EventTrigger(
            match={"prefect.resource.id": device_resource(queue)},
            expect={BUILD_CHANGED},
            posture=Posture.Reactive,
            threshold=1,
            within=timedelta(0),
        ),
        actions=[
            RunDeployment(
                source="selected",
                deployment_id=deployment_id,
                parameters={"request": {**request, **from_event}},
            )
        ],
    )


def ensure(client: SyncPrefectClient, wanted: AutomationCore) -> None:
    """Create the automation, or bring the one of that name to what is wanted."""
    found = client.read_automations_by_name(wanted.name)
    if not found:
        client.create_automation(wanted)
        return
    client.update_automation(found[0].id, wanted)
