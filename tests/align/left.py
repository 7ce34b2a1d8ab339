"""What the processes of a planned run would have left, as contract tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.plan.run_document import RunDocument
from tilewatch.tasks.read.captures.operator_capture import OBSERVED


class Left:
    """Builds the captures and observations of an experiment's processes, all well unless told otherwise."""

    def __init__(self, document: RunDocument, experiment: str) -> None:
        self.captures: list[dict[str, Any]] = []
        self.observed: list[dict[str, Any]] = []
        self.kernels: list[dict[str, Any]] = []
        self._document = document
        for number, process in enumerate(document.plans[experiment].processes):
            capture_id = f"{number:032x}"
            common = {
                "capture_id": capture_id,
                "run_id": document.run_id,
                "build": document.build,
                "build_id": document.build_id,
                "experiment": experiment,
                "arm": process.arm,
                "evidence": "measured",
                "process_index": process.process_index,
            }
            self.captures.append({
                **common,
                "role": process.role,
                "kind": "timing",
                "block": process.block,
                "agent": document.agent,
                "status": "complete",
                "lease_id": "01LEASE",
                "started_ns": 2_000 + number,
                "ended_ns": 3_000 + number,
            })  # fmt: skip
            for point in process.points:
                fmt = point["weight_format_requested"]
                seen = {
                    "status": "measured",
                    "weight_format": fmt,
                    "dispatched_operator": "cpu_kernel",
                    "strides_x": [point["k"], 1],
                    "strides_w": [point["n"], 1],
                    "profiled_calls": 2,
                    "operator_time_ns": 100,
                }
                self.observed.append({"capture_id": capture_id, "point_id": point["point_id"], **seen})
                for op_type in OPERATORS[point["operation"]]:
                    for _ in range(2):
                        self.kernels.append({
                            **common,
                            "point_id": point["point_id"],
                            "kernel_index": len(self.kernels),
                            "op_type": op_type,
                            "name": op_type,
                            "duration_ns": 50,
                            "input_formats": ["ND", fmt or "ND"],
                            "source_file": "profiler/trace.json",
                        })  # fmt: skip

    def tables(self) -> dict[str, pa.Table]:
        """Contract tables ``captures`` and ``kernels``, and ``observed``."""
        return {
            "captures": from_rows("captures", self.captures),
            "observed": pa.Table.from_pylist(self.observed, schema=OBSERVED),
            "kernels": from_rows("kernels", self.kernels),
        }


OPERATORS = {
    "quant_linear": ("npu::npu_dynamic_quant", "npu::npu_quant_matmul"),
    "quant_matmul": ("npu::npu_quant_matmul",),
    "matmul": ("aten::mm",),
    "grouped_matmul": ("npu::npu_grouped_matmul",),
}
