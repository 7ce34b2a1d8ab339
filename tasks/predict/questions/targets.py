"""Which builds of some runs the predictor knows: their CANN release and their SoC."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tilewatch.tasks.predict.environment import (
    CannVersion,
    Platform,
    cann_version,
    cann_version_names,
    platform,
    platform_names,
)


@dataclass(frozen=True)
class Target:
    """One build with the platform and release that its tiling is predicted for."""

    build: str
    platform: Platform
    cann: CannVersion


def targets(runs: pa.Table) -> list[Target]:
    """Builds whose CANN release and SoC are both known to the predictor, in order of their label."""
    found = {}
    for run in runs.to_pylist():
        release = dict(run["build_components"] or []).get("cann")
        chips = [name for name in platform_names() if name in run["device_class"]]
        if release in cann_version_names() and chips:
            chip = platform(max(chips, key=len))
            found[run["build"]] = Target(run["build"], chip, cann_version(str(release)))
    return [found[build] for build in sorted(found)]
