"""Make a Prefect server agree with a fleet: pools, queues, deployments, automations; any number of times."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
from prefect.exceptions import ObjectNotFound
from prefect.utilities.callables import parameter_schema
from prefect.workers.process import ProcessWorker

from flows.cann_upgrade import cann_upgrade
from flows.compare import compare
from flows.ingest import ingest
from flows.part import part
from flows.reanalyse import reanalyse
from flows.regression import regression
from flows.sweep import sweep
from infra.deployments import automations
from infra.deployments.fleet import DeviceClass, Fleet
from infra.deployments.recipes import Recipe, recipes

CHECKOUT = Path(__file__).parents[2]
FLOWS: dict[str, Flow[..., Any]] = {
    flow.name: flow for flow in (sweep, part, regression, cann_upgrade, compare, ingest, reanalyse)
}


def apply(fleet: Fleet) -> list[Recipe]:
    """Create or update everything; returns the deployments. Nothing that is not of the fleet is touched."""
    made = list(recipes(fleet))
    with get_client(sync_client=True) as client:
        for one in fleet.device_classes:
            _pool(client, one)
        ids = {(r.flow, r.name): _deployment(client, r) for r in made}
        automations.ensure(client, automations.zombies())
        for recipe in made:
            if recipe.flow == "cann_upgrade":
                wanted = automations.upgrade(
                    recipe.queue, ids[recipe.flow, recipe.name], recipe.parameters["request"]
                )
                automations.ensure(client, wanted)
    return made


def has_device(queue: str) -> bool:
    """Whether a fleet with this device was deployed to the server."""
    with get_client(sync_client=True) as client:
        try:
            client.read_deployment_by_name(f"cann_upgrade/{queue}")
        except ObjectNotFound:
            return False
    return True


def _pool(client: SyncPrefectClient, one: DeviceClass) -> None:
    limit = one.limit or len(one.devices)
    text = f"tilewatch: {one.device_class}, agent {one.agent}"
    try:
        client.read_work_pool(one.pool)
        client.update_work_pool(one.pool, WorkPoolUpdate(description=text, concurrency_limit=limit))
    except ObjectNotFound:
        client.create_work_pool(
            WorkPoolCreate(
                name=one.pool,
                type="process",
                description=text,
                base_job_template=ProcessWorker.get_default_base_job_template(),
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
        pull_steps=[{"prefect.deployments.steps.set_working_directory": {"directory": str(CHECKOUT)}}],
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
