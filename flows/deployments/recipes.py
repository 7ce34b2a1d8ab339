"""Which deployments a fleet needs: name, flow, queue, parameters, schedule and tags, as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from tilewatch.flows.deployments.fleet import Device, DeviceClass, Fleet, RegressionPlan
from tilewatch.flows.deployments.runnable import entrypoint
from tilewatch.flows.steps.requests import RegressionRequest, SweepRequest, UpgradeRequest
from tilewatch.infra.fleet_names import ANALYSIS_QUEUE, class_tag, dies_of


@dataclass(frozen=True)
class Recipe:
    """One deployment. ``entrypoint`` is ``module path:flow`` inside the checkout."""

    name: str
    flow: str
    pool: str
    queue: str
    tags: tuple[str, ...]
    parameters: dict[str, Any] = field(default_factory=dict)
    schedule: RegressionPlan | None = None

    @property
    def entrypoint(self) -> str:
        """Where the flow is in the checkout."""
        return entrypoint(self.flow)

    @property
    def when(self) -> str | None:
        """The schedule in words; None for a deployment that is only run when asked."""
        plan = self.schedule
        if plan is None:
            return None
        return f"{plan.cron} {plan.timezone}" if plan.cron else f"every {plan.every_s:g} s"

    @property
    def interval(self) -> timedelta | None:
        """Time between two starts, for a schedule without cron."""
        every_s = self.schedule.every_s if self.schedule else None
        return None if every_s is None else timedelta(seconds=every_s)


def recipes(fleet: Fleet) -> Iterator[Recipe]:
    """Every deployment of the fleet."""
    for one in fleet.device_classes:
        for device in one.devices:
            yield from _of_device(one, device)
        for plan in one.regressions:
            yield _scheduled(one, plan)
        yield Recipe(
            one.pool, "sweep", one.pool, ANALYSIS_QUEUE, _tags(one, "sweep"), _parameters(_shared(one))
        )
        for flow in ("compare", "reanalyse"):
            yield Recipe(one.pool, flow, one.pool, ANALYSIS_QUEUE, ("tilewatch", flow))


def _of_device(one: DeviceClass, device: Device) -> Iterator[Recipe]:
    asked: dict[str, BaseModel | None] = {
        "sweep": one.swept(),
        "part": None,
        "ingest": None,
        "regression": RegressionRequest(sweep=one.swept()),
        "cann_upgrade": UpgradeRequest(sweep=one.swept()),
    }
    for flow, request in asked.items():
        given = _parameters(request) if request else {}
        yield Recipe(device.queue, flow, one.pool, device.queue, _tags(one, flow), given)


def _shared(one: DeviceClass) -> SweepRequest:
    """The sweep of the class over one die of every card."""
    return one.swept().model_copy(update={"devices": tuple(d.queue for d in one_die_a_card(one))})


def one_die_a_card(one: DeviceClass) -> list[Device]:
    """The first device of every card of the class: its other dies share power and heat with it."""
    dies = one.dies_per_card or dies_of(one.device_class)
    cards = {(d.host, d.device // dies): d for d in sorted(one.devices, key=lambda d: -d.device)}
    return [cards[card] for card in sorted(cards)]


def _scheduled(one: DeviceClass, plan: RegressionPlan) -> Recipe:
    request = RegressionRequest(sweep=one.swept(plan.sweep), baseline=plan.baseline)
    queue = plan.queue or one.devices[0].queue
    tags = _tags(one, "regression")
    return Recipe(plan.name, "regression", one.pool, queue, tags, _parameters(request), plan)


def _tags(one: DeviceClass, flow: str) -> tuple[str, ...]:
    return ("tilewatch", flow, class_tag(one.device_class), f"agent:{one.agent}")


def _parameters(request: BaseModel) -> dict[str, Any]:
    return {"request": request.model_dump(mode="json")}
