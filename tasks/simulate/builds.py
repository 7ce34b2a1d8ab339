"""Simulated builds: a label, the CANN release whose host tiling it has, made-up components, planted truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tilewatch.data_contracts.errors import USAGE, TilewatchError
from tilewatch.tasks.plan.choices import DEFAULT_SOC
from tilewatch.tasks.plan.ids import short_hash
from tilewatch.tasks.predict.environment import DAV_2201, CannVersion, Platform, cann_version, platform
from tilewatch.tasks.simulate.truth import Effect, Truth, Where

FILE = Path(__file__).with_name("builds.yaml")
DEFAULT_BUILD = "sim-cann8.5.0"


class SimulationError(TilewatchError):
    """A build or SoC that cannot be simulated; the message lists what can."""

    exit_code = USAGE


@dataclass(frozen=True)
class SimulatedBuild:
    """One build as the stand-in device has it. Every component but ``cann`` is made up."""

    label: str
    cann: CannVersion
    platform: Platform
    components: Mapping[str, str]
    truth: Truth = field(default_factory=Truth)

    @property
    def build_id(self) -> str:
        """Hash of the components; what is planted belongs to them."""
        return short_hash(self.identity)

    @property
    def identity(self) -> dict[str, str]:
        """The components, and a hash of what is planted where anything is."""
        planted = [asdict(effect) for effect in self.truth.effects]
        return {**self.components, **({"planted": short_hash(planted)} if planted else {})}


def simulated_build(label: str | None, soc: str = DEFAULT_SOC) -> SimulatedBuild:
    """The build of builds.yaml named ``label``; without one the oldest.

    Raises SimulationError for an unknown label or a SoC whose log layouts are not simulated.
    """
    known = _builds()
    name = label or DEFAULT_BUILD
    if name not in known:
        raise SimulationError(f"no simulated build {name}; known: {', '.join(known)}")
    chip = platform(soc)
    if chip.npu_arch != DAV_2201:
        raise SimulationError(f"{soc}: only SoCs of NpuArch {DAV_2201} are simulated")
    row = known[name]
    effects = tuple(_effect(planted) for planted in row.get("planted", ()))
    return SimulatedBuild(name, cann_version(row["cann"]), chip, row["components"], Truth(effects))


@cache
def _builds() -> dict[str, dict[str, Any]]:
    builds: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["builds"]
    return builds


def _effect(row: Mapping[str, Any]) -> Effect:
    where = dict(row["where"])
    if "arms" in where:
        where["arms"] = tuple(where["arms"])
    return Effect(**{**row, "where": Where(**where)})
