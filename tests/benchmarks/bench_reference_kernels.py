"""Reference kernels against the plainest torch call of the same work, and a process against its import.

``python tests/benchmarks/bench_reference_kernels.py``: medians of one thread, weights hot, ratio to the
reference of the same line measured in the same run.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tasks" / "measure" / "program")]

import cpu_kernels  # noqa: E402
import torch  # noqa: E402

from tilewatch.tasks.measure.method import default_method, method_hash  # noqa: E402
from tilewatch.tasks.measure.run import describe, measure_process  # noqa: E402

ROUNDS = 15
ROWS = (1, 8, 64, 128)
K, N = 4096, 1024


def median_us(call: Callable[[], Any]) -> float:
    """Median time of ``call`` in microseconds."""
    times = []
    for _ in range(ROUNDS + 2):
        start_ns = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start_ns)
    return statistics.median(times[2:]) / 1e3


def cases(m: int) -> list[tuple[str, Callable[[], Any], str, Callable[[], Any]]]:
    """Kernel and reference: name, call, name, call."""
    ops = torch.ops.npu
    x, w = torch.randn(m, K).bfloat16(), torch.randint(-128, 128, (K, N), dtype=torch.int8)
    w_nz, w_bf16 = ops.npu_format_cast(w, 29), torch.randn(K, N).bfloat16()
    w_bf16_nz = ops.npu_format_cast(w_bf16, 29)
    scale = torch.ones(N).bfloat16()
    quantised, rows = ops.npu_dynamic_quant(x)
    experts = w.view(4, K // 4, N)
    experts_nz, short = ops.npu_format_cast(experts, 29), quantised[:, : K // 4].contiguous()
    counts = torch.tensor([m, 0, 0, 0])

    def quant_matmul(weight: torch.Tensor) -> Any:
        return ops.npu_quant_matmul(
            quantised, weight, scale, pertoken_scale=rows, output_dtype=torch.bfloat16
        )

    def grouped(weight: torch.Tensor) -> Any:
        return ops.npu_grouped_matmul(
            [short], [weight], scale=[scale.expand(4, N)], per_token_scale=[rows], split_item=2, group_type=0,
            group_list_type=1, group_list=counts, output_dtype=torch.bfloat16,
        )  # fmt: skip

    def one_expert() -> Any:
        return torch._int_mm(short, experts[0])

    return [
        ("npu_dynamic_quant", lambda: ops.npu_dynamic_quant(x), "x.float()", lambda: x.float()),
        ("npu_quant_matmul ND", lambda: quant_matmul(w), "_int_mm", lambda: torch._int_mm(quantised, w)),
        ("npu_quant_matmul NZ", lambda: quant_matmul(w_nz), "_int_mm", lambda: torch._int_mm(quantised, w)),
        ("matmul BF16 NZ", lambda: x @ w_bf16_nz, "matmul BF16 ND", lambda: x @ w_bf16),
        ("npu_grouped_matmul ND", lambda: grouped(experts), "_int_mm", one_expert),
        ("npu_grouped_matmul NZ", lambda: grouped(experts_nz), "_int_mm", one_expert),
    ]  # fmt: skip


def kernels() -> None:
    """Print one line a kernel and M."""
    torch.set_num_threads(1)
    cpu_kernels.register()
    print(f"K={K} N={N} | kernel | M | us | reference | us | ratio")
    with torch.inference_mode():
        for m in ROWS:
            for name, call, reference, plain in cases(m):
                ours, theirs = median_us(call), median_us(plain)
                print(f"{name} | {m} | {ours:.0f} | {reference} | {theirs:.0f} | {ours / theirs:.2f}")


def process() -> None:
    """Print what one process of ten points costs beside its samples, against the bare import of torch."""
    start_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    import_s = time.perf_counter() - start_s
    method = default_method("cpu")
    point = {
        "operation": "quant_matmul", "m_executed": 8, "k": 1024, "n": 512, "dtype_w": "int8",
        "dtype_out": "bfloat16", "weight_format_requested": "FRACTAL_NZ", "launch_mode": "eager",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        plan = {
            **dict.fromkeys(("run_id", "experiment", "experiment_name", "plan_hash", "arm", "role"), "bench"),
            "schema_version": 1, "kind": "timing", "agent": "cpu", "lease_id": "bench", "method": method,
            "method_hash": method_hash(method), "process_index": 0, "block": 0, "seed": 1, "env": {},
            "build": {"label": "bench", "build_id": describe(sys.executable, "cpu").build_id},
            "lock_path": f"{folder}/lock",
            "amount": {
                "samples": 20, "min_sample_ns": 200_000, "max_point_ns": 400_000_000,
                "warm_up_max_rounds": 30, "profiled_calls": 5, "discard_budget": 5,
            },
            "points": [{**point, "point_id": str(number)} for number in range(10)],
        }  # fmt: skip
        start_s = time.perf_counter()
        outcome = measure_process(plan, Path(folder) / "c", python=sys.executable, timeout_s=300)
        wall_s = time.perf_counter() - start_s
        capture = json.loads((outcome.capture_dir / "capture.json").read_text())
    beside_s = wall_s - capture["in_calls_ns"] / 1e9
    print(f"\nten points: {wall_s:.2f} s, of which {beside_s:.2f} s are not inside timed calls;")
    print(f"reference: python -c 'import torch' {import_s:.2f} s; ratio {beside_s / import_s:.2f}")
    print({name: f"{ns / 1e9:.3f} s" for name, ns in capture["phases"].items()})


if __name__ == "__main__":
    kernels()
    process()
