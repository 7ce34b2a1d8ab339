"""The ledger's prediction for a decode step against the TPOT that was observed, and why they differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.analyse import serving_case as case
from tilewatch.data_contracts import from_rows, schema
from tilewatch.tasks.analyse.comparison.serving_compare import ServingRequest
from tilewatch.tasks.analyse.gates.serving_conclusions import CONCLUSIONS, serving_conclusions
from tilewatch.tasks.analyse.savings.ledger_saving import predicted_saving
from tilewatch.tasks.analyse.statistics.limits import ServingLimits

MS = 1_000_000
TPOT_MS = {"w8a8_nz": [8.00, 8.01, 7.99, 8.00, 8.00], "bf16": [10.00, 10.01, 9.99, 10.00, 10.00]}
QUANTISED = {"w8a8_nz": {"quantization": "w8a8_int8"}}
REQUEST = ServingRequest("cpu", "cpu", ServingLimits(resamples=2000))
INT8 = {"op_type": "npu::npu_quant_matmul", "input_dtypes": ["int8", "int8"]}


def ledger(net_ns: dict[int, float], k: int = 1024, n: int = 256) -> pa.Table:
    """Net of one dense linear by M."""
    shape = {"input_kind": "standalone", "allocation_regime": "", "k": k, "n": n, "run_id": "run-b"}
    rows = [case.neutral("ledger", {**shape, "m": m, "net_ns": net}) for m, net in net_ns.items()]
    return from_rows("ledger", rows)


def profile(arm: str, parts: dict[str, int], step_ms: int, m: int = 4) -> dict[str, pa.Table]:
    """Two equal decode steps of ``arm``: each category once, for so many ms; dense is an INT8 linear."""
    steps, kernels = [], []
    for step in range(2):
        origin = {
            "capture_id": f"p-{arm}",
            "arm": arm,
            "evidence": "measured",
            "source_file": "f",
            "run_id": "run-e",
        }
        start = step * 100 * MS
        steps.append(
            case.neutral(
                "stage_steps",
                {**origin, "step_id": step, "phase": "decode", "start_ns": start,
                 "end_ns": start + step_ms * MS, "bounds_kernels": True},
            )
        )  # fmt: skip
        for category, length in parts.items():
            shape: dict[str, Any] = (
                {"input_shapes": [[m, 1024], [1024, 256]]} | INT8 if category == "dense" else {}
            )
            row = {
                **origin, "kernel_index": len(kernels), "category": category, "step_id": step,
                "start_ns": start, "duration_ns": length * MS, "task_type": "CPU",
                **(shape if category == "dense" else {}),
            }  # fmt: skip
            kernels.append(case.neutral("kernels", row))
            start += length * MS
    return {"stage_steps": from_rows("stage_steps", steps), "kernels": from_rows("kernels", kernels)}


def concluded(
    nz: dict[str, int], bf16: dict[str, int], book: pa.Table, step_ms: tuple[int, int]
) -> dict[str, Any]:
    run = case.arm_run(TPOT_MS, QUANTISED)
    parts = profile("w8a8_nz", nz, step_ms[0]), profile("bf16", bf16, step_ms[1])
    tables = {
        "launches": run.launches, "requests": run.requests, "serving_metrics": run.serving_metrics,
        **{name: pa.concat_tables([part[name] for part in parts]) for name in ("kernels", "stage_steps")},
    }  # fmt: skip
    found = serving_conclusions(tables, ["w8a8_nz", "bf16"], ledger=book, request=REQUEST)
    assert tuple(found) == CONCLUSIONS
    assert all(table.schema.equals(schema(name)) for name, table in found.items())
    (row,) = found["serving_savings"].to_pylist()
    return row


def test_a_prediction_within_the_observed_interval_agrees() -> None:
    row = concluded({"dense": 4, "norm": 2}, {"dense": 6, "norm": 2}, ledger({1: 1e6, 8: 2.75e6}), (8, 10))
    assert row["calls_per_step"] == 1 and row["covered_share"] == 1
    assert row["predicted_saving_ns"] == pytest.approx(1.75e6)
    row = concluded({"dense": 4, "norm": 2}, {"dense": 6, "norm": 2}, ledger({4: 2e6}), (8, 10))
    assert row["agrees"] and row["reasons"] == []
    assert row["predicted_tpot_change_ns"] == -2e6
    assert row["observed_tpot_change_ns"] == pytest.approx(-2e6, rel=1e-3)
    assert row["base_step_ns"] == 10e6 and row["w8a8_share"] == pytest.approx(0.6)


def test_other_operators_that_moved_are_named_the_largest_first() -> None:
    row = concluded(
        {"dense": 4, "norm": 1, "attention": 3},
        {"dense": 7, "norm": 1, "attention": 1},
        ledger({4: 3e6}),
        (9, 10),
    )
    assert row["agrees"] is False
    assert row["reasons"][0] == "other operators moved: attention by +2.000 ms a step"
    assert row["reasons"][1].startswith("outside the decode step: -1.000 ms")
    assert dict(row["category_changes"])["attention"] == 2e6


def test_a_saving_beyond_the_share_of_its_operators_is_called_that() -> None:
    row = concluded({"dense": 2, "norm": 6}, {"dense": 4, "norm": 6}, ledger({4: 5e6}), (8, 10))
    assert "share: dense, expert and quant are 40% of the step" in row["reasons"]
    assert "the W8A8 operators themselves moved by -2.000 ms, not -5.000 ms" in row["reasons"]


def test_what_the_ledger_does_not_cover_is_listed_and_nothing_is_claimed() -> None:
    row = concluded({"dense": 4}, {"dense": 6}, ledger({8: 1e6, 16: 2e6}), (8, 10))
    assert row["covered_share"] == 0 and row["predicted_saving_ns"] is None and row["agrees"] is None
    assert row["reasons"][0] == "the ledger has a net for 0 of 1 INT8 calls a step, none for K1024 N256 M4"


def test_without_a_profile_nothing_is_said_about_where_the_time_went() -> None:
    run = case.arm_run(TPOT_MS, QUANTISED)
    tables = {"launches": run.launches, "requests": run.requests, "serving_metrics": run.serving_metrics}
    found = serving_conclusions(tables, ["w8a8_nz", "bf16"], request=REQUEST)
    (row,) = found["serving_savings"].to_pylist()
    assert row["base_step_ns"] is None and row["agrees"] is None
    assert "no decode step was profiled in both arms" in row["reasons"][-1]


def test_grouped_calls_are_matched_by_mean_rows_an_expert() -> None:
    parts = profile("w8a8_nz", {"norm": 1}, 2)
    grouped = {
        "capture_id": "p-w8a8_nz", "arm": "w8a8_nz", "evidence": "measured", "source_file": "f", "step_id": 0,
        "op_type": "npu::npu_grouped_matmul", "task_type": "CPU", "input_dtypes": ["int8", None],
        "kernel_index": 9,
        "input_shapes": [[210, 1024], [8, 1024, 256]],
    }  # fmt: skip
    kernels = pa.concat_tables([parts["kernels"], from_rows("kernels", [case.neutral("kernels", grouped)])])
    book = ledger({26: 1e6})
    book = book.set_column(
        book.column_names.index("allocation_regime"), book.schema.field("allocation_regime"), [["exact"]]
    )
    found = predicted_saving(kernels, parts["stage_steps"], book, "w8a8_nz")
    assert found.covered_share == 1 and found.saving_ns == pytest.approx(0.5e6)  # one call in two steps
    assert np.isclose(found.calls_per_step or 0, 0.5)


def test_an_arm_that_was_never_launched_leaves_the_others_compared() -> None:
    run = case.arm_run(TPOT_MS, QUANTISED)
    tables = {"launches": run.launches, "requests": run.requests, "serving_metrics": run.serving_metrics}
    found = serving_conclusions(tables, ["w8a8_nz", "w8a8_nd", "bf16"], request=REQUEST)
    assert set(found["serving_comparisons"]["base_arm"].to_pylist()) == {"bf16"}
