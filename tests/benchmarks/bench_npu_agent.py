"""What the npu agent costs over a bare loop of the same calls, on the real torch_npu over the software NPU.

Reference: the same batches of the same calls, each between one event pair and followed by a synchronise,
in the same process, alternating with the agent's. The profiler is off; its own cost is printed apart.
``python bench_npu_agent.py`` needs ``make npu-venv`` and a C++ compiler.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PYTHON = ROOT / ".venv-npu/bin/python"
ROUNDS = 15
AMOUNT = {
    "samples": 10, "min_sample_ns": 200_000, "max_point_ns": 10**10, "warm_up_max_rounds": 1,
    "discard_budget": 0,
}  # fmt: skip
POINTS = {
    "dynamic_quant": {"k": 4096},
    "quant_linear": {"k": 4096, "n": 1024},
    "quant_matmul": {"k": 4096, "n": 1024},
    "matmul": {"k": 4096, "n": 1024, "dtype_w": "bfloat16"},
    "grouped_matmul": {"k": 2048, "n": 1024, "local_experts": 4, "group_list": [2] * 4, "group_list_type": 1},
}


def main() -> None:
    """Start the measurement in the interpreter of torch_npu, on the software NPU."""
    if not PYTHON.is_file():
        print(f"skipped: needs {PYTHON}; run `make npu-venv`")
        return
    spec = importlib.util.spec_from_file_location("build", ROOT / "tests/software_npu/build.py")
    assert spec is not None and spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    (package,) = PYTHON.parent.parent.glob("lib/python*/site-packages/torch_npu")
    try:
        folder = build.build(package, ROOT / "build/software_npu")
    except build.BuildError as error:
        print(f"skipped: {error}")
        return
    environment = {**os.environ, **build.variables(folder), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run([str(PYTHON), __file__, "inside"], env=environment, check=True)


def inside() -> None:
    """Measure every operation both ways and print the difference."""
    sys.path.insert(0, str(ROOT / "tasks/measure/program"))
    import torch
    from guard import Guard
    from npu_backend import NpuBackend
    from operations import prepare
    from sampling import Sampler
    from weights import Weights

    backend, guard = NpuBackend(), Guard(os.getppid())
    backend.open(1)
    sampler = Sampler(AMOUNT, guard, backend.interference([]), backend.run, backend.tick_ns)
    weights = Weights(1, 0, backend.place)
    print(f"{'operation':16} {'call':>10} {'agent − bare loop':>20} {'of wall time':>13}")
    with torch.inference_mode():
        for operation in POINTS:
            prepared = prepare(_point(operation), weights, 1, backend)
            _print_row(operation, [_round(sampler, prepared.calls) for _ in range(ROUNDS)])
        _profiler_cost(backend, weights, guard)


def _point(operation: str) -> dict[str, Any]:
    base = {
        "point_id": operation, "operation": operation, "m_executed": 8, "dtype_w": "int8",
        "dtype_out": "bfloat16", "weight_format_requested": "FRACTAL_NZ",
    }  # fmt: skip
    return {**base, **POINTS[operation]}


def _round(sampler: Any, calls: list[Any]) -> tuple[float, float, float]:
    """Seconds a sample by the agent, by the bare loop, and of one call."""
    import torch

    rows: list[dict[str, Any]] = []
    began = time.perf_counter()
    sampler.take("point", calls, rows)
    agent_s = (time.perf_counter() - began) / len(rows)
    sizes = [row["calls"] for row in rows]
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    began = time.perf_counter()
    for size in sizes:
        start.record()
        for index in range(size):
            calls[index % len(calls)]()
        end.record()
        torch.npu.synchronize()
        start.elapsed_time(end)
    bare_s = (time.perf_counter() - began) / len(sizes)
    return agent_s, bare_s, bare_s / statistics.mean(sizes)


def _print_row(operation: str, rounds: list[tuple[float, float, float]]) -> None:
    # The least disturbed round of each: other load on the host only ever adds.
    agent_s, bare_s, call_s = (min(column) for column in zip(*rounds, strict=True))
    extra_us, share = 1e6 * (agent_s - bare_s), (agent_s - bare_s) / agent_s
    print(f"{operation:16} {1e6 * call_s:7.0f} µs {extra_us:11.1f} µs/sample {share:12.1%}")


def _profiler_cost(backend: Any, weights: Any, guard: Any) -> None:
    """Wall time of profiling every operation, against the same calls unprofiled."""
    from operations import prepare

    points = [_point(operation) for operation in POINTS]
    began = time.perf_counter()
    for point in points:
        for call in prepare(point, weights, 1, backend).calls * 5:
            call()
        backend.synchronise()
    bare_s = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        backend.profile(points, lambda p: prepare(p, weights, 1, backend), 5, Path(folder), guard, False)
        profiled_s = time.perf_counter() - began
    print(f"profiler: {profiled_s:.2f} s for 25 calls that take {bare_s:.2f} s without it, parsing included")


if __name__ == "__main__":
    inside() if sys.argv[1:] == ["inside"] else main()
