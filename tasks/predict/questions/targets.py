"""Builds of some runs as the predictor sees them: SoC and releases, and why some cannot be predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tilewatch.tasks.predict.calls import DynamicQuantCall, GroupedMatmulCall
from tilewatch.tasks.predict.environment import Platform, platform, platform_names
from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.predict.questions.releases import Releases

_OF_EACH_PACKAGE = (DynamicQuantCall(1, 1), GroupedMatmulCall(1, 16, 32, 1))
WITHOUT_TILING = "cpu"
"""Agent whose operators have no host tiling: there is nothing to predict, and nothing to say."""


@dataclass(frozen=True)
class Target:
    """One build with the platform and releases that its tiling is predicted for."""

    build: str
    platform: Platform
    releases: Releases


def targets(runs: pa.Table, asked: str | None = None) -> list[Target]:
    """Builds of which the SoC and the release of an operator package are known, in order of their label.

    ``asked``: predict every one by this release instead. Raises PredictError where that one is unknown.
    """
    return [target for target in _candidates(runs, asked) if len(_unknown(target)) < len(_OF_EACH_PACKAGE)]


def unpredicted(runs: pa.Table) -> list[str]:
    """One sentence for everything of these builds that is not predicted, and why; none where all is."""
    said = [
        f"build {target.build}: {reason}"
        for target in _candidates(runs, None)
        for reason in dict.fromkeys(_unknown(target))
    ]
    for run in runs.to_pylist():
        if run["agent"] != WITHOUT_TILING and not _chips(run):
            said.append(f"build {run['build']}: no SoC of the platform table is named {run['device_class']}")
    return list(dict.fromkeys(said))


def _candidates(runs: pa.Table, asked: str | None) -> list[Target]:
    found = {}
    for run in runs.to_pylist():
        if chips := _chips(run):
            stated = Releases.of_components(dict(run["build_components"] or []), asked)
            found[run["build"]] = Target(run["build"], platform(max(chips, key=len)), stated)
    return [found[build] for build in sorted(found)]


def _chips(run: dict[str, Any]) -> list[str]:
    return [name for name in platform_names() if name in run["device_class"]]


def _unknown(target: Target) -> list[str]:
    reasons = []
    for call in _OF_EACH_PACKAGE:
        try:
            target.releases.of(call, target.platform)
        except PredictError as error:
            if target.releases.asked is not None:
                raise
            reasons.append(str(error))
    return reasons
