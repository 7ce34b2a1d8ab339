"""The stated cost model: what one call takes, from its shape and its tiling. Made up, and simple on purpose.

A kernel takes its launch, then the longer of moving its weight and working off its rounds. Round numbers near
those of a 910C: they make plausible curves and stand for no device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]
Point = Mapping[str, Any]

LAUNCH_NS = {"dynamic_quant": 2_400.0, "quant_matmul": 4_200.0, "matmul": 4_000.0, "grouped_matmul": 9_000.0}
BYTES_PER_NS = {"FRACTAL_NZ": 1_150.0, "ND": 940.0}
"""Weight bandwidth: an ND weight is read in shorter bursts."""
ROW_NS_PER_BYTE = 0.055
"""Time of one vector core per byte of a row that it quantises."""
MACS_PER_NS = {"int8": 8_000.0, "bfloat16": 4_000.0}
"""Multiply-accumulates of one cube core per ns while a block is worked off."""
ROUND_NS = 260.0
"""Fixed cost of a round of blocks over the cores: fill and drain."""
BETWEEN_KERNELS_NS = 900.0
"""From the end of one kernel of a linear to the start of the next."""
BF16_BASE = (128, 256)
CUBE_CORES = 24


def kernels_ns(point: Point, records: Mapping[str, Record]) -> dict[str, float]:
    """Time of each kernel of one call by operator, in order; ``records`` holds the tiling of each."""
    operation = point["operation"]
    if operation == "dynamic_quant":
        return {"dynamic_quant": dynamic_quant_ns(point, records["dynamic_quant"])}
    if operation == "matmul":
        return {"matmul": _matmul_ns(point, bf16_record(point), "bfloat16", "matmul")}
    if operation == "grouped_matmul":
        record = records.get("grouped_matmul") or bf16_record(point)
        return {"grouped_matmul": _matmul_ns(point, record, point["dtype_w"], "grouped_matmul")}
    main = {"quant_matmul": _matmul_ns(point, records["quant_matmul"], "int8", "quant_matmul")}
    if operation == "quant_linear":
        return {"dynamic_quant": dynamic_quant_ns(point, records["dynamic_quant"]), **main}
    return main


def call_ns(kernels: Mapping[str, float]) -> float:
    """Time of a whole call: its kernels and the gaps between them."""
    return sum(kernels.values()) + BETWEEN_KERNELS_NS * (len(kernels) - 1)


def dynamic_quant_ns(point: Point, record: Record) -> float:
    """Rows of the fullest core times the time of a row of K bfloat16 values."""
    rows = math.ceil(int(point["m_executed"]) / max(int(record["used_core_num"] or 1), 1))
    row_bytes = 2 * int(point["k"])
    return LAUNCH_NS["dynamic_quant"] + rows * row_bytes * ROW_NS_PER_BYTE


def bf16_record(point: Point) -> dict[str, Any]:
    """Tiling of the BF16 counterpart: fixed base blocks dealt to all cube cores."""
    base_m, base_n = BF16_BASE
    columns = math.ceil(int(point["n"]) / base_n)
    blocks = sum(math.ceil(rows / base_m) * columns for rows in _rows_of_groups(point))
    return {"base_m": base_m, "base_n": base_n, "used_core_num": max(min(blocks, CUBE_CORES), 1)}


def _matmul_ns(point: Point, record: Record, dtype: str, operator: str) -> float:
    base_m, base_n = int(record["base_m"] or 16), int(record["base_n"] or 128)
    groups = _rows_of_groups(point)
    columns = math.ceil(int(point["n"]) / base_n)
    blocks = sum(math.ceil(rows / base_m) * columns for rows in groups)
    rounds = math.ceil(blocks / max(int(record["used_core_num"] or 1), 1))
    in_block = min(base_m, max(groups, default=1))
    round_ns = ROUND_NS + in_block * base_n * int(point["k"]) / MACS_PER_NS[dtype]
    weight_bytes = len(groups) * int(point["k"]) * int(point["n"]) * (1 if dtype == "int8" else 2)
    moving_ns = weight_bytes / BYTES_PER_NS[str(point["weight_format_requested"])]
    return LAUNCH_NS[operator] + max(moving_ns, rounds * round_ns)


def _rows_of_groups(point: Point) -> list[int]:
    """Rows of every busy expert, or of the one matrix."""
    if point["group_list"] is None:
        return [int(point["m_executed"])]
    return [int(rows) for rows in point["group_list"] if rows]
