"""What is planted: effects on chosen points, and the noise of processes and samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Noise = Literal["gaussian", "two_mode", "heavy_tailed", "autoregressive"]


@dataclass(frozen=True)
class Where:
    """Points that an effect touches; None stands for all. ``first`` and ``last`` are included."""

    experiment: str | None = None
    arms: tuple[str, ...] | None = None
    linear: str | None = None
    first: int = 1
    last: int | None = None
    allocation_regime: str | None = None
    group_shape: str | None = None

    def covers(self, experiment: str, arm: str, point: Mapping[str, Any]) -> bool:
        """True where the effect touches ``point`` of ``arm``."""
        return (
            self.experiment in (None, experiment)
            and (self.arms is None or arm in self.arms)
            and self.linear in (None, point["linear"])
            and self.first <= point["axis_value"] <= (self.last or point["axis_value"])
            and self.allocation_regime in (None, point["allocation_regime"])
            and self.group_shape in (None, point["group_shape"])
        )


@dataclass(frozen=True)
class Effect:
    """A change of time, of tiling, or of both, on the points of ``where``.

    ``ratio`` multiplies the time; with ``period`` only where the axis value is no multiple of it: a comb.
    ``tiling`` replaces fields of the tiling record by contract names; with a ratio of 1 that is a tiling
    change without an effect on latency. Without ``tiling`` no tiling record tells of the effect.
    """

    where: Where
    ratio: float = 1.0
    period: int | None = None
    tiling: Mapping[str, int | str] = field(default_factory=dict)

    def ratio_at(self, axis_value: int) -> float:
        """Factor on the time at one axis value that ``where`` covers."""
        return 1.0 if self.period and axis_value % self.period == 0 else self.ratio


@dataclass(frozen=True)
class Truth:
    """Everything that is planted in one simulated build and lease. Spreads and shares are of the time itself.

    ``drift`` is what each block of a sweep takes longer than the one before. ``throttled_share`` of all
    samples run ``throttled_ratio`` longer; they are flagged, and discarded within the budget. In mode
    ``two_mode`` a process runs a point 3 % slower throughout in three cases of ten.
    """

    effects: tuple[Effect, ...] = ()
    noise: Noise = "gaussian"
    process_spread: float = 0.003
    sample_spread: float = 0.004
    drift: float = 0.0
    throttled_share: float = 0.0
    throttled_ratio: float = 1.3

    def ratio(self, experiment: str, arm: str, point: Mapping[str, Any]) -> float:
        """Product of all planted factors at one point."""
        product = 1.0
        for effect in self.effects:
            if effect.where.covers(experiment, arm, point):
                product *= effect.ratio_at(point["axis_value"])
        return product

    def tiling(self, experiment: str, arm: str, point: Mapping[str, Any]) -> dict[str, int | str]:
        """Planted fields of the tiling record at one point; later effects win."""
        planted: dict[str, int | str] = {}
        for effect in self.effects:
            if effect.where.covers(experiment, arm, point):
                planted |= effect.tiling
        return planted
