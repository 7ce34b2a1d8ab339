"""Predictions a second of CPU time against the tests' scalar oracles, and the full boundary table of A to D.

Run: python tests/benchmarks/bench_predict.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.predict import (
    oracle_block_search,
    oracle_dynamic_quant,
    oracle_grouped_matmul,
    oracle_sliding_window,
)
from tilewatch.tasks.plan.experiment import load_experiments
from tilewatch.tasks.predict.calls import DynamicQuantCall, GroupedMatmulCall, OperatorCall, QuantMatmulCall
from tilewatch.tasks.predict.environment import Platform, cann_version, platform
from tilewatch.tasks.predict.errors import OutOfScope
from tilewatch.tasks.predict.predict import predict_axis
from tilewatch.tasks.predict.questions.boundaries import intervals
from tilewatch.tasks.predict.questions.experiments import curves

C910, A950 = platform("Ascend910_9391"), platform("Ascend950DT_9581")
NEWEST = cann_version("9.2.0-beta.2")
RANGES = {"A": (1, 512), "B": (1, 256), "C": (1, 256), "D": (1, 512)}


def seconds(work: Callable[[], object]) -> float:
    start = process_time()
    work()
    return process_time() - start


def rate(name: str, call: OperatorCall, chip: Platform, points: int, oracle: Callable[[int], object]) -> None:
    """Predictions a second over ``points`` rows, and how many times the oracle's rate that is."""
    rows = np.arange(1, points + 1)
    fast = points / seconds(lambda: predict_axis(call, "m", rows, chip, NEWEST))
    few = rows[:: max(1, points // 40)].tolist()
    slow = len(few) / seconds(lambda: [oracle(m) for m in few])
    print(f"{name:28} {fast:12,.0f} predictions/s   {fast / slow:8.1f} × scalar oracle ({slow:,.0f}/s)")


def boundary_table(chip: Platform) -> None:
    """Intervals of every curve of experiments A to D over their ranges, both CANN 8.5.0 and 9.1.0."""
    experiments = load_experiments(Path(__file__).parents[2] / "flows" / "experiments")
    found = {"curves": 0, "points": 0, "intervals": 0}

    def work() -> None:
        for letter, span in RANGES.items():
            for curve in curves(experiments[letter]):
                for version in ("8.5.0", "9.1.0"):
                    try:
                        table = intervals(curve.call, curve.axis, *span, chip, cann_version(version))
                    except OutOfScope:
                        continue
                    found["curves"] += 1
                    found["points"] += span[1] - span[0] + 1
                    found["intervals"] += len(table)

    taken = seconds(work)
    counts = ", ".join(f"{count:,} {what}" for what, count in found.items())
    print(f"boundary table {chip.npu_arch:13} {taken:12.2f} s            {counts}")


def main() -> None:
    rate(
        "DynamicQuant 2201", DynamicQuantCall(1, 4096), C910, 100_000,
        lambda m: oracle_dynamic_quant.dav_2201(m, 4096, 48, C910.ub_bytes, smooth=False, small_m=True),
    )  # fmt: skip
    rate(
        "DynamicQuant 3510", DynamicQuantCall(1, 4096), A950, 100_000,
        lambda m: oracle_dynamic_quant.dav_3510(m, 4096, 64, A950.ub_bytes, smooth=False, split_rows=True),
    )  # fmt: skip
    rate(
        "QuantBatchMatmulV3 3510", QuantMatmulCall(1, 4096, 1024), A950, 4_096,
        lambda m: oracle_sliding_window.tiling(
            oracle_sliding_window.Call(m, 4096, 1024, True, False, False, 32, True)
        ),
    )  # fmt: skip
    chip = oracle_block_search.Chip(24, C910.l1_bytes, C910.l2_bytes)
    rate(
        "QuantBatchMatmulV3 2201", QuantMatmulCall(1, 4096, 1024), C910, 256,
        lambda m: oracle_block_search.best(m, 4096, 1024, False, False, chip),
    )  # fmt: skip
    rate(
        "GroupedMatmul 2201", GroupedMatmulCall(1, 4096, 4096, 16), C910, 100_000,
        lambda m: oracle_grouped_matmul.tiling(oracle_grouped_matmul.Call(m, 4096, 4096, 16, True, 0)),
    )  # fmt: skip
    boundary_table(C910)
    boundary_table(A950)


if __name__ == "__main__":
    main()
