"""Prefect automations: dead runs end or go on, a changed build starts the upgrade run, alerts go out."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import CallWebhook, ChangeFlowRunState, RunDeployment
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

from tilewatch.infra.fleet_names import (
    BUILD_CHANGED,
    BUILD_PAYLOAD,
    NOT_COMPARABLE_EVENT,
    REGRESSION_EVENT,
    device_resource,
)

PATIENCE = timedelta(minutes=20)
"""Until a run is taken for dead.

A server that was restarted holds back, for 15 minutes, events whose predecessor it had seen before
(Prefect 3.9, ``PRECEDING_EVENT_LOOKBACK``): sooner, a run that is well would look dead.
"""

_ENDED = ("Completed", "Failed", "Cancelled", "Crashed")
_WAITS = ("Scheduled", "Late", "AwaitingRetry", "Pending")


def zombies() -> AutomationCore:
    """Crashes a run that sent heartbeats and then neither another one nor an end: its process is dead.

    One that was queued again may wait for longer, and is not dead.
    """
    return AutomationCore(
        name="tilewatch: a run without heartbeat is crashed",
        description="A killed worker leaves its runs in Running; they would hold their slot for ever.",
        trigger=_falls_silent("heartbeat", ("heartbeat", *_ENDED, *_WAITS)),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED, message="no heartbeat: the process or its host is gone"
            )
        ],
    )


def unstarted() -> AutomationCore:
    """Queues a run again that was taken and not begun: who took it is dead, and it would hold its slot."""
    return AutomationCore(
        name="tilewatch: a run that was taken and not begun is queued again",
        description="An agent or its host died between taking the run and starting its process.",
        trigger=_falls_silent("Pending", ("Running", "Scheduled", *_ENDED)),
        actions=[
            ChangeFlowRunState(
                state=StateType.SCHEDULED, message="it was taken and not begun; it is queued again"
            )
        ],
    )


def upgrade(queue: str, deployment_id: UUID, request: dict[str, Any]) -> AutomationCore:
    """Runs the upgrade on the device whose build changed, with old and new from the event."""
    from_event = {name: f"{{{{ event.payload.{name} }}}}" for name in BUILD_PAYLOAD}
    return AutomationCore(
        name=f"tilewatch: the build of {queue} changed",
        description="An agent saw another build than before: measure it and compare it with the baseline.",
        trigger=_happens({BUILD_CHANGED}, device_resource(queue)),
        actions=[
            RunDeployment(
                source="selected",
                deployment_id=deployment_id,
                parameters={"request": {**request, **from_event}},
            )
        ],
    )


def regressions_told(webhook_id: UUID) -> AutomationCore:
    """Calls the webhook with the text of every confirmed regression, in the form that chat services take.

    What could not be compared is told too: silence would look like calm.
    """
    return AutomationCore(
        name="tilewatch: confirmed regressions are told",
        description="An alert names its three worst points, their causes, the report and the command; or why "
        "armed points were not compared.",
        trigger=_happens({REGRESSION_EVENT, NOT_COMPARABLE_EVENT}, "tilewatch.build.*"),
        actions=[
            CallWebhook(block_document_id=webhook_id, payload='{"text": {{ event.payload.text | tojson }}}')
        ],
    )


def _falls_silent(after: str, expected: Iterable[str]) -> EventTrigger:
    """A flow run that had the one event, and none of the expected ones within PATIENCE."""
    return EventTrigger(
        match={"prefect.resource.id": ["prefect.flow-run.*"]},
        after={f"prefect.flow-run.{after}"},
        expect={f"prefect.flow-run.{what}" for what in expected},
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=PATIENCE,
    )


def _happens(events: set[str], resource: str) -> EventTrigger:
    """One of the events, every time, about a resource whose id matches."""
    return EventTrigger(
        match={"prefect.resource.id": resource},
        expect=events,
        posture=Posture.Reactive,
        threshold=1,
        within=timedelta(0),
    )


def ensure(client: SyncPrefectClient, wanted: AutomationCore) -> None:
    """Create the automation, or bring the one of that name to what is wanted."""
    found = client.read_automations_by_name(wanted.name)
    if not found:
        client.create_automation(wanted)
        return
    client.update_automation(found[0].id, wanted)
