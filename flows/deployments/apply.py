"""Make a Prefect server agree with a fleet: pools, queues, deployments, automations; any number of times."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from httpx import HTTPError
from prefect import Flow
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterName,
    FlowFilter,
    FlowFilterName,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.types import SecretDict
from prefect.utilities.callables import parameter_schema
from pydantic import SecretStr

from tilewatch.flows.cann_upgrade import cann_upgrade
from tilewatch.flows.compare import compare
from tilewatch.flows.deployments import automations
from tilewatch.flows.deployments.fleet import Device, DeviceClass, Fleet
from tilewatch.flows.deployments.local import LOCAL_POOL
from tilewatch.flows.deployments.recipes import Recipe, recipes
from tilewatch.flows.deployments.runnable import CHECKOUT, PULL_STEPS, job_template
from tilewatch.flows.ingest import ingest
from tilewatch.flows.part import part
from tilewatch.flows.reanalyse import reanalyse
from tilewatch.flows.regression import regression
from tilewatch.flows.sweep import sweep
from tilewatch.infra.errors import ServiceError
from tilewatch.infra.fleet_names import ANALYSIS_QUEUE, POOL_MARK

FLOWS: dict[str, Flow[..., Any]] = {
    flow.name: flow for flow in (sweep, part, regression, cann_upgrade, compare, ingest, reanalyse)
}


WEBHOOK = "tilewatch-alerts"
"""Name of the Prefect webhook block."""


class DeployError(ServiceError):
    """The server failed while it was made to agree with a fleet; the message says what was applied."""


def apply(fleet: Fleet, alert_webhook: SecretStr | None = None) -> list[Recipe]:
    """Create or update everything; returns the deployments. Nothing that is not of the fleet is touched.

    ``alert_webhook`` is the address that is told of confirmed regressions; without it what an earlier call
    set up stays. Raises DeployError where the server fails in the middle: what was applied stays, and another
    call goes on.
    """
    made = list(recipes(fleet))
    applied: list[str] = []
    try:
        with get_client(sync_client=True) as client:
            _apply(client, fleet, made, alert_webhook, applied)
    except (HTTPError, PrefectException) as error:
        raise DeployError(
            f"the Prefect server failed: {error}; applied before: {', '.join(applied) or 'nothing'}",
            "Run `tilewatch deploy` again when the server answers: it goes on and repeats nothing",
        ) from error
    return made


def _apply(
    client: SyncPrefectClient,
    fleet: Fleet,
    made: list[Recipe],
    alert_webhook: SecretStr | None,
    applied: list[str],
) -> None:
    """Pools, deployments, automations, in this order; each is added to ``applied`` when it is done."""
    for one in fleet.device_classes:
        _pool(client, one)
        applied.append(f"pool {one.pool}")
    ids = {}
    for recipe in made:
        ids[recipe.flow, recipe.name] = _deployment(client, recipe)
        applied.append(f"deployment {recipe.flow}/{recipe.name}")
    if _abandon_local(client, fleet):
        applied.append(f"pool {LOCAL_POOL} removed")
    wanted = [automations.zombies(), automations.unstarted()]
    if alert_webhook is not None:
        wanted.append(automations.regressions_told(_webhook(alert_webhook)))
    upgrades = [recipe for recipe in made if recipe.flow == "cann_upgrade"]
    wanted += [automations.upgrade(r.queue, ids[r.flow, r.name], r.parameters["request"]) for r in upgrades]
    for automation in wanted:
        automations.ensure(client, automation)
        applied.append(f"automation {automation.name!r}")


def _abandon_local(client: SyncPrefectClient, fleet: Fleet) -> bool:
    """Remove the pool that `tilewatch up` made here where a fleet has all of its devices now; True if it was.

    Nobody works for it any more: its deployments would stay Not Ready for ever.
    """
    if LOCAL_POOL in {one.pool for one in fleet.device_classes}:
        return False
    taken = {device.queue for one in fleet.device_classes for device in one.devices}
    try:
        queues = {q.name for q in client.read_work_queues(work_pool_name=LOCAL_POOL)} - {ANALYSIS_QUEUE}
    except ObjectNotFound:
        return False
    if not queues <= taken:
        return False
    of_pool = WorkPoolFilter(name=WorkPoolFilterName(any_=[LOCAL_POOL]))
    for deployment in client.read_deployments(work_pool_filter=of_pool):
        client.delete_deployment(deployment.id)
    client.delete_work_pool(LOCAL_POOL)
    return True


def devices_of(host: str) -> list[Device]:
    """Devices of ``host`` that were deployed to the server, by number."""
    with get_client(sync_client=True) as client:
        found = client.read_deployments(
            flow_filter=FlowFilter(name=FlowFilterName(any_=["cann_upgrade"])),
            deployment_filter=DeploymentFilter(name=DeploymentFilterName(like_=f"{host}-")),
        )
    numbers = sorted(int(n) for d in found if (n := d.name.removeprefix(f"{host}-")).isdigit())
    return [Device(host=host, device=number) for number in numbers]


def _webhook(address: SecretStr) -> UUID:
    """The block that holds the address: encrypted on the server, and no parameter of anything."""
    headers = SecretDict({"Content-Type": "application/json"})
    # Prefect's type is that of both worlds; outside of an event loop it is not a coroutine.
    return cast(UUID, Webhook(url=address, headers=headers).save(WEBHOOK, overwrite=True))


def _pool(client: SyncPrefectClient, one: DeviceClass) -> None:
    limit = one.limit or len(one.devices)
    text = f"{POOL_MARK}{one.device_class}, agent {one.agent}"
    try:
        client.read_work_pool(one.pool)
        update = WorkPoolUpdate(description=text, concurrency_limit=limit, base_job_template=job_template())
        client.update_work_pool(one.pool, update)
    except ObjectNotFound:
        client.create_work_pool(
            WorkPoolCreate(
                name=one.pool,
                type="process",
                description=text,
                base_job_template=job_template(),
                concurrency_limit=limit,
            )
        )
    for device in one.devices:
        _queue(client, one, device.queue)


def _queue(client: SyncPrefectClient, one: DeviceClass, name: str) -> None:
    """One run at a time; the description is the device class, which an agent compares with its device."""
    try:
        found = client.read_work_queue_by_name(name, work_pool_name=one.pool)
        client.update_work_queue(found.id, description=one.device_class, concurrency_limit=1)
    except ObjectNotFound:
        client.create_work_queue(
            name, description=one.device_class, concurrency_limit=1, work_pool_name=one.pool
        )


def _deployment(client: SyncPrefectClient, recipe: Recipe) -> UUID:
    flow = FLOWS[recipe.flow]
    return client.create_deployment(
        flow_id=client.create_flow_from_name(flow.name),
        name=recipe.name,
        description=flow.description,
        version=flow.version,
        tags=list(recipe.tags),
        parameters=recipe.parameters,
        schedules=_schedules(recipe),
        work_pool_name=recipe.pool,
        work_queue_name=recipe.queue,
        path=str(CHECKOUT),
        entrypoint=recipe.entrypoint,
        pull_steps=PULL_STEPS,
        parameter_openapi_schema=parameter_schema(flow).model_dump_for_openapi(),
        enforce_parameter_schema=True,
    )


def _schedules(recipe: Recipe) -> list[DeploymentScheduleCreate]:
    plan = recipe.schedule
    if plan is None:
        return []
    if plan.cron is not None:
        return [DeploymentScheduleCreate(schedule=CronSchedule(cron=plan.cron, timezone=plan.timezone))]
    assert recipe.interval is not None
    return [DeploymentScheduleCreate(schedule=IntervalSchedule(interval=recipe.interval))]
