"""The least time a point can take: what it moves and computes, against what its device can do at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tilewatch.tasks.predict.environment import Platform, platform, platform_names

TABLE = Path(__file__).with_name("device_limits.yaml")
SIZES = {"int8": 1, "bfloat16": 2, "float16": 2, "float32": 4}
SCALE_BYTES = 4
WARM = "warm"
"""Cache rule under which weights are in L2: memory bandwidth bounds nothing then."""

Point = Mapping[str, Any]


@dataclass(frozen=True)
class Limits:
    """The most a device can do; ``bytes_per_s`` is None where it is not known."""

    bytes_per_s: float | None
    ops_per_s: Mapping[str, float]


@dataclass(frozen=True)
class Work:
    """What one call moves and computes. ``weight_bytes`` come from memory: weights are rotated past L2, while
    activations stay hot. ``operations`` count a multiply and an add each, of ``dtype``.
    """

    moved_bytes: int
    weight_bytes: int
    operations: int
    dtype: str


@dataclass(frozen=True)
class Least:
    """The least time, and what sets it: ``memory`` or ``compute``."""

    ns: int
    bound: str


def work_of(point: Point) -> Work:
    """Bytes and operations of one call of a planned point.

    Experts without rows are not read. A quantising operator has no matmul: it moves its rows and computes
    nothing that bounds it.
    """
    k, n = int(point["k"]), int(point["n"] or 0)
    size_x, size_out = SIZES[point["dtype_x"]], SIZES[point["dtype_out"]]
    if point["operation"] == "dynamic_quant":
        rows = int(point["m_executed"])
        return Work(rows * (k * (size_x + 1) + SCALE_BYTES), 0, 0, point["dtype_x"])
    counts = point.get("group_list")
    rows = sum(counts) if counts is not None else int(point["m_executed"])
    matrices = sum(count > 0 for count in counts) if counts is not None else 1
    weights = matrices * k * n * SIZES[point["dtype_w"]]
    moved = weights + rows * (k * size_x + n * size_out)
    return Work(moved, weights, 2 * rows * k * n, point["dtype_w"])


def limits_of(device_class: str) -> Limits | None:
    """Limits of the SoC that a device class names; None for one of no table, such as a CPU."""
    names = [name for name in platform_names() if name in device_class]
    if not names:
        return None
    chip = platform(max(names, key=len))
    rows = [row for row in _table() if any(chip.name.startswith(soc) for soc in row["socs"])]
    return _limits(rows[0], chip) if rows else None


def least_time(work: Work, limits: Limits | None, cache_rule: str) -> Least | None:
    """The longer of moving the weights and computing, in whole ns; None where neither is known."""
    if limits is None:
        return None
    found = []
    if limits.bytes_per_s is not None and cache_rule != WARM:
        found.append(Least(int(work.weight_bytes * 1e9 / limits.bytes_per_s), "memory"))
    if work.dtype in limits.ops_per_s:
        found.append(Least(int(work.operations * 1e9 / limits.ops_per_s[work.dtype]), "compute"))
    longest = max(found, key=lambda least: least.ns, default=None)
    return longest if longest is not None and longest.ns > 0 else None


def _limits(row: Mapping[str, Any], chip: Platform) -> Limits:
    cycles = chip.cube_cores * chip.cube_mhz * 1e6 * float(row["clock_allowance"])
    bandwidth = row["bytes_per_s"]
    return Limits(
        None if bandwidth is None else float(bandwidth),
        {dtype: ops * cycles for dtype, ops in row["ops_per_cycle"].items()},
    )


@cache
def _table() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))["limits"]
    return rows
