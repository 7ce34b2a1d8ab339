"""Boundaries: the maximal intervals of an axis on which a prediction stays the same, in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import BoolArray, IntArray
from tilewatch.tasks.predict.calls import NZ, NZ_COLUMNS_INT8, NZ_ROWS, OperatorCall
from tilewatch.tasks.predict.environment import CannVersion, Platform
from tilewatch.tasks.predict.predict import op_type, predict_axis
from tilewatch.tasks.predict.records import Decisions, TilingRecord, record

M_ALIGNMENT = 16


@dataclass(frozen=True)
class Interval:
    """Axis values ``start`` … ``stop`` (both included) with one decision.

    ``record`` is the prediction at ``start``; ``differs`` names the fields that changed from the one before.
    """

    start: int
    stop: int
    record: TilingRecord
    differs: tuple[str, ...]


def axis_step(call: OperatorCall, axis: str) -> int:
    """Distance of legal axis values: an NZ weight comes in whole fractals."""
    if getattr(call, "weight_format", None) != NZ or axis not in ("k", "n"):
        return 1
    rows = "n" if getattr(call, "transpose_w", False) else "k"
    return NZ_ROWS if axis == rows else NZ_COLUMNS_INT8


def axis_values(call: OperatorCall, axis: str, start: int, stop: int) -> IntArray:
    """Legal values of ``axis`` from ``start`` to ``stop``, both included."""
    step = axis_step(call, axis)
    return np.arange(-(-start // step) * step, stop + 1, step, dtype=np.int64)


def intervals(
    call: OperatorCall,
    axis: str,
    start: int,
    stop: int,
    platform: Platform,
    cann: CannVersion,
    *,
    every_field: bool = False,
) -> list[Interval]:
    """Maximal intervals of ``axis`` in [start, stop] on which the record is constant.

    Fields that only restate the shape (rows per core, remainders, sizes) do not make a boundary
    unless ``every_field``. Raises PredictError as predict_axis does.
    """
    values = axis_values(call, axis, start, stop)
    if not len(values):
        return []
    decisions = predict_axis(call, axis, values, platform, cann)
    changes = _changes(decisions, axis, every_field)
    firsts = np.flatnonzero(np.any(list(changes.values()), axis=0)) + 1
    starts = [0, *firsts.tolist()]
    ends = [*(firsts - 1).tolist(), len(values) - 1]
    name = op_type(call, platform)
    return [
        Interval(
            int(values[first]),
            int(values[last]),
            record(name, decisions, first),
            tuple(field for field, changed in changes.items() if first and changed[first - 1]),
        )
        for first, last in zip(starts, ends, strict=True)
    ]


def refine_axis(
    call_template: OperatorCall,
    axis: str,
    start: int,
    stop: int,
    platform: Platform,
    cann_version: CannVersion | Sequence[CannVersion],
) -> list[int]:
    """Axis values a sweep needs: the ends, both sides of every boundary, and the next aligned value after it.

    Aligned means a multiple of the base block, or of 16 where there is none. With several versions the union.
    """
    versions = [cann_version] if isinstance(cann_version, CannVersion) else list(cann_version)
    step = axis_step(call_template, axis)
    chosen: set[int] = set()
    for version in versions:
        found = intervals(call_template, axis, start, stop, platform, version)
        for interval in found:
            base = (interval.record.base_m or M_ALIGNMENT) if axis in ("m", "m_e") else step
            chosen |= {interval.start, interval.stop, -(-interval.start // base) * base}
    return sorted(value for value in chosen if start <= value <= stop)


def _changes(decisions: Decisions, axis: str, every_field: bool) -> dict[str, BoolArray]:
    """For each field, whether it changes between neighbouring points."""
    own = decisions.fields if every_field else decisions.compared
    branches = np.array([outcome.branch for outcome in decisions.outcomes])[decisions.outcome]
    reasons = np.array([outcome.unknown_reason or "" for outcome in decisions.outcomes])[decisions.outcome]
    compared = {"branch": branches, "unknown_reason": reasons, **decisions.columns, **own}
    compared.pop(axis, None)
    return {name: values[1:] != values[:-1] for name, values in compared.items()}
