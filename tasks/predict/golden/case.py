"""One golden row as a prediction to make and the values it must give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewatch.tasks.predict.calls import OperatorCall
from tilewatch.tasks.predict.environment import CannVersion, Platform

Value = int | str | bool

# CANN's names of values that have a column of their own.
COLUMN_OF = {
    "workspace": "workspace_bytes",
    "coreNum": "used_core_num",
    "usedCoreNum": "used_core_num",
    "baseM": "base_m",
    "baseN": "base_n",
    "baseK": "base_k",
    "singleN": "single_n",
    "aivAicRatio": "aiv_aic_ratio",
    "fixedAxis": "isEnableFixedAxis",
}
KEY_FIELD = "key."
KEY_FIELDS = "tiling_key_fields."


@dataclass(frozen=True)
class Case:
    """Predict ``call`` with m at each of ``ms``: every value of ``expected`` must come out.

    Names in ``expected``: contract columns, CANN's names of tiling data, ``branch``, ``path``, and ``key.X``
    for a part of the tiling key. ``refused`` means that the host fails the call instead.
    """

    line: int
    call: OperatorCall
    ms: tuple[int, ...]
    platform: Platform
    cann: CannVersion
    expected: Mapping[str, Value] = field(hash=False)
    refused: bool = False
    verified: frozenset[str] | None = None


@dataclass(frozen=True)
class Skipped:
    """A row outside what is predicted, and why."""

    line: int
    reason: str


def expected_values(
    row: Mapping[str, Any], prefix: str, skip: frozenset[str] = frozenset()
) -> dict[str, Value]:
    """Values under ``prefix`` by the names of Case; empty cells and names in ``skip`` are left out."""
    found: dict[str, Value] = {}
    for dotted, value in row.items():
        if not dotted.startswith(prefix) or value is None or isinstance(value, list):
            continue
        own = dotted.removeprefix(prefix)
        leaf = own.rsplit(".", 1)[-1]
        if leaf in skip:
            continue
        name = f"{KEY_FIELD}{leaf}" if own.startswith(KEY_FIELDS) else COLUMN_OF.get(leaf, leaf)
        # A key may be written as digits, because it can exceed what JSON numbers hold.
        found[name] = int(value) if isinstance(value, float) or name == "tiling_key" else value
    return found
