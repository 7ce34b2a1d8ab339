"""The fleet of a machine that nobody described: its CPU as the one device, nothing scheduled."""

from __future__ import annotations

import socket

from tilewatch.flows.deployments.fleet import SCHEMA_VERSION, Device, DeviceClass, Fleet
from tilewatch.flows.steps.requests import SweepRequest
from tilewatch.infra.builds import present_build
from tilewatch.infra.settings import Settings

LOCAL_POOL = "local"
"""Work pool of the fleet that `tilewatch up` makes where there is none."""


def local_fleet(settings: Settings) -> Fleet:
    """This host alone. Raises MeasureError where the interpreter cannot measure."""
    found = present_build(settings, "cpu")
    return Fleet(
        schema_version=SCHEMA_VERSION,
        device_classes=(
            DeviceClass(
                pool=LOCAL_POOL,
                device_class=found.device_class,
                agent="cpu",
                devices=(Device(host=socket.gethostname(), device=0),),
                dies_per_card=None,
                limit=None,
                sweep=SweepRequest(),
                regressions=(),
            ),
        ),
    )
