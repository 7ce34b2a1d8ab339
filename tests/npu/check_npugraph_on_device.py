"""For a real NPU only: graph replay as the agent does it. The software NPU has no graphs: no test runs this.

``python check_npugraph_on_device.py`` on a host with CANN captures a quantised linear by the agent's own code
for every bucket, replays it with fewer rows than the bucket holds, and prints a line a row count: whether
the rows asked for equal those of an eager call without padding, and what eager call and replay take. Then
it prints the kernels that the profiler sees of replays: the agent counts and names points by them, so their
number, types, shapes and formats must be those of the calls. Exit code 1 where a replay differs or a kernel
is missing.
"""

from __future__ import annotations

import csv
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parents[2] / "tasks/measure/program"
K, N, ROUNDS, PROFILED = 4096, 1024, 200, 3
BUCKETS = (8, 16, 64, 128)
ASKED = (1, 8, 13, 64, 100)
KERNELS = ("DynamicQuant", "QuantBatchMatmulV3")


def main() -> int:
    sys.path.insert(0, str(PROGRAM))
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    from npu_backend import GraphsMissing, NpuBackend
    from operations import quant_linear
    from weights import WeightKey, load

    backend = NpuBackend()
    backend.open(1)
    import torch

    source = torch.randint(-128, 128, (K, N), dtype=torch.int8)
    weight = load(source, WeightKey("int8", (K, N), "FRACTAL_NZ", False), backend.place)
    scale = backend.place(torch.full((N,), 1 / K, dtype=torch.bfloat16))
    differing = 0
    for m in ASKED:
        rows = next(bucket for bucket in BUCKETS if bucket >= m)
        x = backend.place(torch.randn(rows, K).to(torch.bfloat16))
        results: list[Any] = []

        def call(x: Any = x, results: list[Any] = results) -> None:
            results[:] = [quant_linear(x, weight, scale)]

        try:
            (replay,) = backend.captured([call])
        except GraphsMissing as missing:
            print(missing)
            return 1
        captured = results[0]
        replay()
        expected = quant_linear(x[:m].contiguous(), weight, scale)
        backend.synchronise()
        same = torch.equal(captured[:m].cpu(), expected.cpu())
        differing += not same
        times = " ".join(
            f"{name} {_us(backend, one):.1f} µs" for name, one in (("eager", call), ("replay", replay))
        )
        print(f"M {m} in {rows} rows: same {same}, {times}")
    return 1 if differing or not _kernels_are_seen(backend, replay, weight) else 0


def _us(backend: Any, call: Any) -> float:
    """Microseconds a call by one event pair around many."""
    return float(backend.run([call] * ROUNDS).interval_ns) / ROUNDS / 1000


def _kernels_are_seen(backend: Any, replay: Any, weight: Any) -> bool:
    """Print what the profiler says of replays; whether every one left each kernel once."""
    from backends import Prepared
    from guard import Guard
    from npu_profile import LEAD_IN_CALLS, profile_points

    def prepared(_point: Any) -> Any:
        return Prepared([replay], "npu::npu_quant_matmul", {}, weight, None)

    with tempfile.TemporaryDirectory() as folder:
        profile_points([{}], prepared, PROFILED, Path(folder), Guard(os.getppid()), False)
        (details,) = Path(folder).rglob("kernel_details.csv")
        with details.open(encoding="utf-8", newline="") as stream:
            found = list(csv.DictReader(stream))
    for row in found:
        print("kernel", *(row.get(name) for name in ("Name", "Type", "Input Shapes", "Input Formats")))
    counts = [sum(row["Type"] == kernel for row in found) for kernel in KERNELS]
    return all(PROFILED <= count <= PROFILED + LEAD_IN_CALLS for count in counts)


if __name__ == "__main__":
    sys.exit(main())
