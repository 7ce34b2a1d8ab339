"""What a prediction says: arrays of decisions over points, and one record of it by the contract's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import UNSET, IntArray
from tilewatch.tasks.predict.calls import OperatorCall, call_id

CUBE_ONLY, ONE_TO_ONE, TWO_TO_ONE = 0, 1, 2
COLUMNS = (
    "tiling_key", "block_dim", "used_core_num", "base_m", "base_n", "base_k", "m_cnt", "n_cnt", "stream_k",
    "aiv_aic_ratio", "single_n", "tuning_config", "schedule_mode", "workspace_bytes", "units_per_expert",
    "rounds",
)  # fmt: skip
"""Integer columns a branch may fill; the ratio counts vector cores per cube core until it is printed."""
CORE_LIMITING = (
    "cores limited by the caller's stream or process would change it; the profiler's block dim decides"
)


@dataclass(frozen=True)
class Outcome:
    """One way a branch can end: its name, the rule in words, and what would decide where shape cannot.

    With an ``unknown_reason`` the values may still be there: then they hold unless that decides otherwise.
    """

    branch: str
    rule: str
    ub_template: str | None = None
    unknown_reason: str | None = None


@dataclass(frozen=True)
class Decisions:
    """Predictions at P points, as arrays of length P.

    ``columns``: contract columns, UNSET where null. ``fields``: tiling data by CANN's own names, UNSET where
    the host code writes nothing. ``outcome`` indexes ``outcomes``. ``compared``: arrays that make a boundary
    when they change, besides the columns and the outcome; fields that only restate the shape are left out.
    """

    columns: Mapping[str, IntArray]
    fields: Mapping[str, IntArray]
    outcome: IntArray
    outcomes: tuple[Outcome, ...]
    compared: Mapping[str, IntArray]

    def __len__(self) -> int:
        return len(self.outcome)

    def value(self, name: str, index: int) -> int | None:
        """Column or field ``name`` at one point; None where it is not set or unknown."""
        array = self.columns.get(name, self.fields.get(name))
        if array is None or int(array[index]) == UNSET:
            return None
        return int(array[index])


@dataclass(frozen=True)
class TilingRecord:
    """One predicted tiling decision, by the names of the contracts ``tilings`` and ``predictions``."""

    op_type: str
    branch: str
    rule: str
    unknown_reason: str = CORE_LIMITING
    tiling_key: str | None = None
    block_dim: int | None = None
    used_core_num: int | None = None
    base_m: int | None = None
    base_n: int | None = None
    base_k: int | None = None
    m_cnt: int | None = None
    n_cnt: int | None = None
    stream_k: bool | None = None
    ub_template: str | None = None
    aiv_aic_ratio: str | None = None
    single_n: int | None = None
    tuning_config: int | None = None
    schedule_mode: int | None = None
    workspace_bytes: int | None = None
    units_per_expert: int | None = None
    rounds: int | None = None
    fields: Mapping[str, int] = field(default_factory=dict)

    def row(self, call: OperatorCall, platform: str, cann_version: str) -> dict[str, Any]:
        """The record as a row of the ``predictions`` contract."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return own | {
            "fields": {name: str(value) for name, value in self.fields.items()},
            "platform": platform,
            "cann_version": cann_version,
            "call_id": call_id(call),
            "evidence": "predicted",
            "key_source": "prediction" if self.tiling_key is not None else None,
            "m": call.m,
            "k": call.k,
            "n": getattr(call, "n", None),
            "weight_format": getattr(call, "weight_format", None),
        }


def record(op_type: str, decisions: Decisions, index: int = 0) -> TilingRecord:
    """The decision at one point as a record; every one of them holds for the cores the platform reports."""
    outcome = decisions.outcomes[int(decisions.outcome[index])]
    values: dict[str, Any] = {name: decisions.value(name, index) for name in COLUMNS}
    if values["tiling_key"] is not None:
        values["tiling_key"] = str(values["tiling_key"])
    if values["stream_k"] is not None:
        values["stream_k"] = bool(values["stream_k"])
    if values["aiv_aic_ratio"] is not None:
        values["aiv_aic_ratio"] = f"{values['aiv_aic_ratio']}:1"
    extra = {name: decisions.value(name, index) for name in decisions.fields}
    return TilingRecord(
        op_type=op_type,
        branch=outcome.branch,
        rule=outcome.rule,
        unknown_reason="; ".join(filter(None, (outcome.unknown_reason, CORE_LIMITING))),
        ub_template=outcome.ub_template,
        fields={name: value for name, value in extra.items() if value is not None},
        **values,
    )


def constants(values: Mapping[str, int], count: int) -> dict[str, IntArray]:
    """Fields that are the same at each of ``count`` points."""
    return {name: np.full(count, value, dtype=np.int64) for name, value in values.items()}
