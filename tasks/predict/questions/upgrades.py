"""What a CANN upgrade changes before it is run: predictions of two versions side by side, worst first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewatch.tasks.predict.arithmetic.integers import IntArray
from tilewatch.tasks.predict.calls import OperatorCall, points
from tilewatch.tasks.predict.environment import CannVersion, Platform
from tilewatch.tasks.predict.errors import OutOfScope
from tilewatch.tasks.predict.predict import op_type, predict_axis
from tilewatch.tasks.predict.questions.experiments import Curve
from tilewatch.tasks.predict.records import record

FIELDS = (
    "block_dim", "tiling_key", "base_m", "base_n", "base_k", "branch", "ub_template", "aiv_aic_ratio",
    "single_n", "stream_k", "schedule_mode", "rounds", "workspace_bytes",
)  # fmt: skip
Value = int | str | bool | None


@dataclass(frozen=True)
class Change:
    """One field that differs at one point. ``n`` is None where the operator has none."""

    operator: str
    m: int
    k: int
    n: int | None
    field: str
    before: Value
    after: Value
    weight_format: str | None
    linear: str | None

    @property
    def severity(self) -> tuple[int, float]:
        """Sort key, worst first: cores lost by share, then key, base block, the rest, cores won last."""
        if self.field == "block_dim" and isinstance(self.before, int) and isinstance(self.after, int):
            share = self.after / self.before
            return (0, share) if share < 1 else (4, share)
        if self.field == "tiling_key":
            return 1, 0.0
        return (2 if self.field in ("base_m", "base_n", "base_k") else 3), 0.0


def changes(
    call: OperatorCall,
    axis: str,
    values: IntArray,
    platform: Platform,
    before: CannVersion,
    after: CannVersion,
    linear: str | None = None,
) -> list[Change]:
    """Fields of FIELDS that differ between the two versions at each value of ``axis``, in axis order."""
    old = predict_axis(call, axis, values, platform, before)
    new = predict_axis(call, axis, values, platform, after)
    at = points(call, axis, values)
    name = op_type(call, platform)
    found = []
    for index in range(len(at)):
        first, second = record(name, old, index), record(name, new, index)
        shape = int(at.m[index]), int(at.k[index]), int(at.n[index]) or None
        unknown = first.tiling_key is None or second.tiling_key is None
        # Against an unknown tiling only the branch can be said to change.
        for field in ("branch",) if unknown else FIELDS:
            was, now = getattr(first, field), getattr(second, field)
            if was != now:
                found.append(
                    Change(name, *shape, field, was, now, getattr(call, "weight_format", None), linear)
                )
    return found


def worst_first(found: Iterable[Change]) -> list[Change]:
    """Changes by severity, then by operator and shape."""
    return sorted(found, key=lambda c: (c.severity, c.operator, c.k, c.n or 0, c.weight_format or "", c.m))


def upgrade_changes(
    swept: Iterable[tuple[Curve, IntArray]], platform: Platform, before: CannVersion, after: CannVersion
) -> tuple[list[Change], list[str]]:
    """Changes on every curve at its axis values, worst first and each once; and why curves were left out.

    Raises OutOfScope where no curve at all has rules on ``platform``, PredictError as predict_axis does.
    """
    found: list[Change] = []
    left_out: list[OutOfScope] = []
    covered = 0
    for curve, values in swept:
        try:
            found += changes(curve.call, curve.axis, values, platform, before, after, curve.linear)
            covered += 1
        except OutOfScope as error:
            left_out.append(error)
    if left_out and not covered:
        raise left_out[0]
    return list(dict.fromkeys(worst_first(found))), list(dict.fromkeys(map(str, left_out)))
