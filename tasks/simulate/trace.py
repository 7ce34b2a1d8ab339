"""The profiler's trace of a simulated process, in the form ``tasks.read.torch_trace`` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tasks.read.torch_trace import RANGE_PREFIX

NAMES = {
    "dynamic_quant": "npu::npu_dynamic_quant",
    "quant_matmul": "npu::npu_quant_matmul",
    "grouped_matmul": "npu::npu_grouped_matmul",
    "matmul": "aten::mm",
}
"""Operator of the framework that stands for each kernel."""

_TYPES = {"int8": "signed char", "bfloat16": "c10::BFloat16"}
GAP_NS = 900
Event = dict[str, Any]


class TraceWriter:
    """Collects profiled calls; ``text`` is the whole trace. Times start at ``base_ns`` (Unix)."""

    def __init__(self, base_ns: int) -> None:
        self._base_ns, self._now_ns = base_ns, 0
        self._events: list[Event] = []

    def point(self, point: Mapping[str, Any], kernels_ns: Mapping[str, float], calls: int) -> None:
        """Write ``calls`` calls of one point, each leaving the kernels of ``kernels_ns`` in order."""
        started_ns = self._now_ns
        inside: list[Event] = []
        for _ in range(calls):
            for operator, duration_ns in kernels_ns.items():
                self._now_ns += GAP_NS
                inside.append(_kernel(operator, point, self._now_ns, round(duration_ns)))
                self._now_ns += round(duration_ns)
        self._now_ns += GAP_NS
        name = f"{RANGE_PREFIX}{point['point_id']}"
        self._events.append(_event("user_annotation", name, started_ns, self._now_ns - started_ns, {}))
        self._events += inside

    @property
    def text(self) -> str:
        """The trace as JSON."""
        body = {"schemaVersion": 1, "baseTimeNanoseconds": self._base_ns, "traceEvents": self._events}
        return json.dumps(body)


def _kernel(operator: str, point: Mapping[str, Any], start_ns: int, duration_ns: int) -> Event:
    rows, k, n = point["m_executed"], point["k"], point["n"]
    dims, types = [[rows, k]], [_TYPES["bfloat16" if operator == "dynamic_quant" else point["dtype_x"]]]
    if operator == "quant_matmul":
        types = [_TYPES["int8"]]
    if operator != "dynamic_quant":
        experts = point["local_experts"]
        dims.append([experts, k, n] if experts else [k, n])
        types.append(_TYPES[point["dtype_w"]])
    return _event("cpu_op", NAMES[operator], start_ns, duration_ns, {"Input Dims": dims, "Input type": types})


def _event(category: str, name: str, start_ns: int, duration_ns: int, arguments: Mapping[str, Any]) -> Event:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": start_ns / 1000,
        "dur": duration_ns / 1000,
        "args": dict(arguments),
    }
