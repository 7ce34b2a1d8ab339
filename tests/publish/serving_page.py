"""A small invented run of experiment E with everything the page shows: no number of it was measured."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.analyse import serving_case as case
from tilewatch.data_contracts import from_rows
from tilewatch.tasks.analyse.comparison.serving_compare import ServingRequest
from tilewatch.tasks.analyse.gates.serving_conclusions import serving_conclusions
from tilewatch.tasks.analyse.statistics.limits import ServingLimits
from tilewatch.tasks.publish.serving_report.content import ServingContent

ARMS = ("w8a8_nz", "w8a8_nd", "bf16")
TPOT_MS = {"w8a8_nz": [12.00, 12.02, 11.98, 12.01, 11.99], "w8a8_nd": [12.0, 12.1, 11.9, 12.05, 11.95],
           "bf16": [10.00, 10.02, 9.98, 10.01, 9.99]}  # fmt: skip
PARTS_MS = {
    "w8a8_nz": {"dense": 3, "expert": 3, "quant": 4, "attention": 1, "norm": 1},
    "w8a8_nd": {"dense": 3, "expert": 3, "quant": 4, "attention": 1, "norm": 1},
    "bf16": {"dense": 4, "expert": 4, "attention": 1, "norm": 1},
}
MS = 1_000_000
GATES: list[dict[str, Any]] = [
    {"name": "tpot", "metric": "tpot_ns", "statistic": "mean", "direction": "at_most", "limit": 11e6,
     "tolerance": 0.02, "needed_launches": 3},
    {"name": "output", "metric": "output_token_per_s", "statistic": "total", "direction": "at_least",
     "limit": None, "tolerance": 0.02, "needed_launches": 3},
]  # fmt: skip


def _profile(arm: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    steps, kernels = [], []
    for step, (phase, scale) in enumerate((("prefill", 4), ("decode", 1), ("decode", 1))):
        origin = {
            "capture_id": f"p-{arm}",
            "arm": arm,
            "evidence": "measured",
            "source_file": "f",
            "run_id": "run-e",
        }
        start = 1000 * MS * step
        end = start + (sum(PARTS_MS[arm].values()) * scale + 2) * MS
        mark = {"step_id": step, "phase": phase, "start_ns": start, "end_ns": end, "bounds_kernels": True}
        steps.append(case.neutral("stage_steps", {**origin, **mark}))
        for category, length in PARTS_MS[arm].items():
            row = {**origin, "kernel_index": len(kernels), "category": category, "step_id": step,
                   "start_ns": start, "duration_ns": length * scale * MS, "task_type": "CPU"}  # fmt: skip
            kernels.append(case.neutral("kernels", row))
            start += length * scale * MS
    return steps, kernels


def content(**more: Any) -> ServingContent:
    """Five launches of three arms, one of them failed, profiles of all, one armed gate."""
    told = {
        "w8a8_nz": {"quantization": "w8a8_int8", "weight_format": "FRACTAL_NZ"},
        "w8a8_nd": {"quantization": "w8a8_int8", "weight_format": "ND",
                    "forced_differences": ["the format variable flips all linears and the experts at once"]},
        "bf16": {"weight_format": "FRACTAL_NZ", "forced_differences": ["fewer tokens fit the KV cache"]},
    }  # fmt: skip
    run = case.arm_run(TPOT_MS, told)
    metrics = [
        row
        for launch in run.launches.to_pylist()
        for row in case.metrics_of(launch, {"tpot_ns": TPOT_MS[launch["arm"]][launch["process_index"]] * 1e6})
    ]
    lost = case.failed("bf16", 5, "ready", "not ready after 30 s")
    profiles = [_profile(arm) for arm in ARMS]
    tables = {
        "launches": from_rows("launches", [*run.launches.to_pylist(), lost]),
        "requests": run.requests,
        "serving_metrics": pa.concat_tables([run.serving_metrics, from_rows("serving_metrics", metrics)]),
        "stage_steps": from_rows("stage_steps", [row for steps, _ in profiles for row in steps]),
        "kernels": from_rows("kernels", [row for _, kernels in profiles for row in kernels]),
    }
    request = ServingRequest("cpu", "cpu", ServingLimits(resamples=2000))
    found = serving_conclusions(tables, ARMS, GATES, request=request)
    runs = case.neutral("runs", {
        "run_id": "run-e", "build": "cpu", "experiment": "E", "agent": "cpu", "evidence": "measured",
        "status": "incomplete", "status_reason": "1 of 16 launches did not complete", "preset": "quick",
        "device_class": "Invented CPU, 2 cores", "command": "tilewatch run E --preset quick",
    })  # fmt: skip
    return ServingContent(
        runs=from_rows("runs", [runs]),
        launches=tables["launches"],
        requests=tables["requests"],
        serving_metrics=tables["serving_metrics"],
        phase_costs=found["phase_costs"],
        comparisons=found["serving_comparisons"],
        gates=found["gates"],
        savings=found["serving_savings"],
        **{"title": "Run run-e", "command": "tilewatch report run-e", **more},
    )
