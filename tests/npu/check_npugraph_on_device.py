"""For a real NPU only: a captured QuantMatmul replays to the same result, and how long eager and replay take.

The software NPU has no graphs, so no test runs this. ``python check_npugraph_on_device.py`` on a host with
CANN prints one line a row count and fails where a replay differs from the eager call. The agent itself
measures launch mode eager only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch_npu  # noqa: F401 - registers the device

K, N, ROUNDS = 4096, 1024, 200
NZ = 29


def main() -> int:
    torch.npu.config.allow_internal_format = True
    weight = torch.randint(-128, 128, (K, N), dtype=torch.int8).npu()
    weight = torch.ops.npu.npu_format_cast(weight, NZ)
    scale = torch.full((N,), 1 / K, dtype=torch.bfloat16).npu()
    differing = 0
    for m in (1, 16, 64, 128):
        x = torch.randn(m, K).to(torch.bfloat16).npu()

        def call(x: torch.Tensor = x) -> torch.Tensor:
            quantised, row_scale = torch.ops.npu.npu_dynamic_quant(x)
            return torch.ops.npu.npu_quant_matmul(
                quantised, weight, scale, pertoken_scale=row_scale.flatten(), output_dtype=torch.bfloat16
            )

        expected = call()
        torch.npu.synchronize()
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            captured = call()
        graph.replay()
        torch.npu.synchronize()
        same = torch.equal(captured.cpu(), expected.cpu())
        differing += not same
        print(f"M {m}: same {same}, eager {_us(call):.1f} µs, replay {_us(graph.replay):.1f} µs")
    return 1 if differing else 0


def _us(call: Callable[[], object]) -> float:
    """Microseconds a call by one event pair around many."""
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    start.record()
    for _ in range(ROUNDS):
        call()
    end.record()
    torch.npu.synchronize()
    return float(start.elapsed_time(end)) * 1000 / ROUNDS


if __name__ == "__main__":
    sys.exit(main())
