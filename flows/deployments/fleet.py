"""The fleet file: device classes, their devices by host, and the regressions that run by themselves.

```yaml
schema_version: 1
device_classes:
  - pool: cpu                                   # name of the work pool
    device_class: cpu x86_64 AMD EPYC 25/17/1   # as `tilewatch agent doctor` or `tilewatch show` says
    agent: cpu
    devices: [{host: lab-1, device: 0}, {host: lab-2, device: 0}]
    sweep: {experiments: [A, B], preset: quick} # what an upgrade measures
    regressions:
      - {name: nightly, cron: "0 3 * * *", timezone: Europe/Berlin}
```
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from prefect.client.schemas.schedules import CronSchedule
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from tilewatch.flows.steps.requests import SweepRequest
from tilewatch.infra.errors import SettingsError
from tilewatch.infra.fleet_names import queue_of
from tilewatch.tasks.plan.choices import Agent
from tilewatch.tasks.plan.strict_yaml import ExperimentError, read_strict

SCHEMA_VERSION = 1


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Device(_Part):
    """One device of one host; its work queue is ``<host>-<device>``."""

    host: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Host name as the host itself says"
    )
    device: int = Field(ge=0, description="Number of the device on its host")

    @property
    def queue(self) -> str:
        """Name of the device's work queue."""
        return queue_of(self.host, self.device)


class RegressionPlan(_Part):
    """A regression that runs by itself: by cron, or every so many seconds."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", description="Name of the deployment")
    cron: str | None = Field(None, description="When, as five cron fields")
    timezone: str = Field("UTC", description="Time zone of the cron fields")
    every_s: float | None = Field(None, ge=1, description="Instead of cron: seconds between two starts")
    queue: str | None = Field(None, description="Device that measures; without it the first one of the class")
    baseline: str = Field("@baseline", description="What to compare with")
    sweep: SweepRequest | None = Field(None, description="What to measure; without it the sweep of the class")

    @model_validator(mode="after")
    def _one_schedule(self) -> Self:
        if (self.cron is None) == (self.every_s is None):
            raise ValueError("give either cron or every_s")
        for name, given in (
            ("cron", {"cron": self.cron or "* * * * *"}),
            ("timezone", {"timezone": self.timezone}),
        ):
            try:
                CronSchedule.model_validate({"cron": "* * * * *", **given})
            except ValidationError as error:
                said = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
                raise ValueError(f"{name}: {getattr(self, name)!r} is not usable: {said}") from None
        return self


class DeviceClass(_Part):
    """Devices that are comparable with each other: one work pool, one queue a device."""

    pool: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", description="Name of the work pool")
    device_class: str = Field(min_length=1, description="Class as the measuring program describes the device")
    agent: Agent = Field(description="What executes")
    devices: tuple[Device, ...] = Field(min_length=1, description="Devices of the class")
    dies_per_card: int | None = Field(
        None, ge=1, description="Dies of a card; without it two for Ascend910_93xx (910C), else one"
    )
    limit: int | None = Field(None, ge=1, description="Runs at once; without it one a device")
    sweep: SweepRequest = Field(SweepRequest(), description="What an upgrade and a regression measure")
    regressions: tuple[RegressionPlan, ...] = Field((), description="Regressions that run by themselves")

    @model_validator(mode="after")
    def _queues_are_devices(self) -> Self:
        known = {device.queue for device in self.devices}
        if strange := [r.queue for r in self.regressions if r.queue and r.queue not in known]:
            raise ValueError(
                f"queue {strange[0]} is not a device of pool {self.pool}: {', '.join(sorted(known))}"
            )
        return self

    def swept(self, sweep: SweepRequest | None = None) -> SweepRequest:
        """The sweep with the agent of the class."""
        return (sweep or self.sweep).model_copy(update={"agent": self.agent})


class Fleet(_Part):
    """Everything that runs under one Prefect server."""

    schema_version: Literal[1] = Field(description="Version of this file's format")
    device_classes: tuple[DeviceClass, ...] = Field(min_length=1, description="One a class and agent")

    @field_validator("device_classes")
    @classmethod
    def _names_are_unique(cls, found: tuple[DeviceClass, ...]) -> tuple[DeviceClass, ...]:
        names = [
            [one.pool for one in found],
            [d.queue for one in found for d in one.devices],
            [r.name for one in found for r in one.regressions],
        ]
        for kind in names:
            if twice := {name for name in kind if kind.count(name) > 1}:
                raise ValueError(f"{', '.join(sorted(twice))} occurs more than once")
        return found


def read_fleet(path: Path) -> Fleet:
    """The fleet of a file. Raises SettingsError naming file, line, field and what is allowed."""
    try:
        return read_strict(path, Fleet)
    except ExperimentError as error:
        raise SettingsError(str(error)) from error
