"""Names that an agent and the deployments of its device agree on."""

from __future__ import annotations

BUILD_CHANGED = "tilewatch.build.changed"
"""Event of an agent that sees another build than before."""

BUILD_PAYLOAD = ("old_build_id", "new_build_id", "old_cann", "new_cann")
"""What the event says; an unknown CANN version is empty."""

REGRESSION_EVENT = "tilewatch.regression"
"""Event of a flow that found something SLOWER, and SLOWER again in a second lease."""

NOT_COMPARABLE_EVENT = "tilewatch.not_comparable"
"""Event of a flow that could not compare every armed point: nobody watches while that is so."""

ANALYSIS_QUEUE = "default"
"""Queue of a pool that every worker of the pool serves beside its device's own."""

POOL_MARK = "tilewatch: "
"""How the description of a work pool begins that a fleet file made."""

OWN_QUEUE = "TILEWATCH_QUEUE"
"""Variable in which an agent tells its flow runs which device they occupy."""

_CLASS_TAG = "device-class:"


def queue_of(host: str, device: int) -> str:
    """Work queue of one device; also the name of its deployments and of its worker."""
    return f"{host}-{device}"


def device_resource(queue: str) -> str:
    """Resource id of the events of one device."""
    return f"tilewatch.device.{queue}"


def class_tag(device_class: str) -> str:
    """The tag that says what device class a run is for."""
    return f"{_CLASS_TAG}{device_class}"


def class_of(tags: list[str]) -> str | None:
    """The device class that a run with these tags is for; None where any will do."""
    return next((t.removeprefix(_CLASS_TAG) for t in sorted(tags) if t.startswith(_CLASS_TAG)), None)


def dies_of(device_class: str) -> int:
    """Dies that share a card's power and heat: two on Ascend910_93xx (910C), one elsewhere."""
    return 2 if "Ascend910_93" in device_class else 1
