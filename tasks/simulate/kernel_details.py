"""kernel_details.csv of a simulated process, as torch_npu's profiler leaves it at Level1 without counters.

``tilewatch.tasks.read.captures.device_kernels`` reads it as it reads a device's file.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from tilewatch.tasks.predict.records import TilingRecord
from tilewatch.tasks.simulate.plog import API

PATH = "profiler/simulated_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv"
COLUMNS = (
    "Device_id", "Model ID", "Task ID", "Stream ID", "Name", "Type", "OP State", "Accelerator Core",
    "Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Dim", "Mix Block Dim", "HF32 Eligible",
    "Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types",
    "Output Formats", "Context ID",
)  # fmt: skip
NO_MODEL = "4294967295"
GAP_NS = 900
_DTYPES = {"int8": "INT8", "bfloat16": "DT_BF16"}


class KernelDetailsWriter:
    """Collects profiled calls; ``text`` is the whole file. Times start at ``now_ns`` (Unix)."""

    def __init__(self, now_ns: int) -> None:
        self._now_ns, self._task = now_ns, 0
        self._buffer = io.StringIO()
        self._csv = csv.writer(self._buffer, lineterminator="\n")
        self._csv.writerow(COLUMNS)

    @property
    def text(self) -> str:
        """The file so far."""
        return self._buffer.getvalue()

    def point(
        self,
        point: Mapping[str, Any],
        kernels_ns: Mapping[str, float],
        records: Mapping[str, TilingRecord],
        calls: int,
    ) -> None:
        """Write ``calls`` calls of one point, each leaving the kernels of ``kernels_ns`` in order."""
        for _ in range(calls):
            for operator, duration_ns in kernels_ns.items():
                self._kernel(operator, point, round(duration_ns), records[operator])

    def _kernel(
        self, operator: str, point: Mapping[str, Any], duration_ns: int, record: TilingRecord
    ) -> None:
        self._task += 1
        self._now_ns += GAP_NS
        shapes, dtypes, formats = _inputs(operator, point)
        core, mixed = _cores(record)
        output = [point["m_executed"], point["k"] if operator == "dynamic_quant" else point["n"]]
        kind = "INT8" if operator == "dynamic_quant" else "DT_BF16"
        self._csv.writerow([
            0, NO_MODEL, self._task, 2, f"{API[record.op_type]}_{record.op_type}AiCore_{record.op_type}",
            record.op_type, "dynamic", core, f"{_microseconds(self._now_ns)}\t", _microseconds(duration_ns),
            _microseconds(GAP_NS), record.block_dim, mixed, "NO", f'"{";".join(map(_shape, shapes))}"',
            ";".join(dtypes), ";".join(formats), f'"{_shape(output)}"', kind, "ND", "N/A",
        ])  # fmt: skip
        self._now_ns += duration_ns


def _inputs(operator: str, point: Mapping[str, Any]) -> tuple[list[list[int]], list[str], list[str]]:
    """Shapes, types and formats of the activation and, where there is one, the weight."""
    x = [point["m_executed"], point["k"]]
    if operator == "dynamic_quant":
        return [x], [_DTYPES["bfloat16"]], ["ND"]
    experts, w = point["local_experts"], [point["k"], point["n"]]
    dtype = _DTYPES[point["dtype_w"]]
    return [x, [experts, *w] if experts else w], [dtype, dtype], ["ND", point["weight_format_requested"]]


def _cores(record: TilingRecord) -> tuple[str, int]:
    """Accelerator core and mix block dim of a kernel."""
    if record.op_type.startswith("DynamicQuant"):
        return "AI_VECTOR_CORE", 0
    if record.aiv_aic_ratio is None:
        return "AI_CORE", 0
    return "MIX_AIC", int(record.aiv_aic_ratio.split(":")[0]) * (record.block_dim or 0)


def _shape(dims: list[int]) -> str:
    return ",".join(map(str, dims))


def _microseconds(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"
