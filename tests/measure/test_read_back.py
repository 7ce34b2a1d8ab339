"""Every operation measured for real on a tiny scale, read back into tables that keep their contracts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.measure.run import measure_process
from tilewatch.tasks.read.captures.operator_capture import CaptureTables, read_capture
from tilewatch.tasks.validate.run import validate_tables

Make = Callable[..., dict[str, Any]]
TABLES = ("captures", "samples", "kernels")
CALLS = 3


@pytest.fixture
def tables(plan: Make, point: Make, tmp_path: Path) -> CaptureTables:
    grouped = {
        "operation": "grouped_matmul",
        "local_experts": 3,
        "group_list": [3, 0, 5],
        "group_list_type": 1,
    }
    points = [
        point(1, operation="dynamic_quant", dtype_x="bfloat16", dtype_w=None, dtype_out="int8"),
        point(2, operation="tuple_input"),
        point(3, operation="quant_linear"),
        point(4, operation="quant_matmul", weight_format_requested="ND"),
        point(5, operation="quant_matmul"),
        point(6, operation="matmul", dtype_w="bfloat16"),
        point(7, operation="matmul", dtype_w="bfloat16", weight_format_requested="ND"),
        point(8, **grouped, tuning_config=4),
        point(9, **grouped, dtype_w="bfloat16", m_executed=20),
        point(10, weight_format_requested="ND", transposed_w=True),
    ]
    outcome = measure_process(plan(points), tmp_path / "c", python=sys.executable, timeout_s=60)
    assert outcome.status == "complete", outcome
    return read_capture(tmp_path / "c", raw_prefix="raw/B/test/id")


def test_a_real_capture_keeps_every_contract_and_proves_every_point(
    tables: CaptureTables, tmp_path: Path
) -> None:
    validated = validate_tables({name: getattr(tables, name) for name in TABLES}, tmp_path)
    assert tables.quarantine.num_rows == validated.quarantine.num_rows == 0, tables.quarantine.to_pylist()
    assert tables.samples.num_rows == tables.captures["sample_count"][0].as_py()
    kernels = {
        number: tables.kernels.filter(_is(tables.kernels, number))["op_type"].to_pylist()
        for number in range(1, 11)
    }
    quant, matmul = ["npu::npu_dynamic_quant"] * CALLS, ["npu::npu_quant_matmul"] * CALLS
    assert kernels[1] == quant
    assert kernels[2] == kernels[4] == kernels[5] == kernels[10] == matmul
    assert sorted(kernels[3]) == quant + matmul
    assert kernels[6] == kernels[7] == ["aten::mm"] * CALLS
    assert kernels[8] == kernels[9] == ["npu::npu_grouped_matmul"] * CALLS
    observed = {int(row["point_id"], 16): row for row in tables.observed.to_pylist()}
    assert {n: (row["weight_format"], row["dispatched_operator"]) for n, row in observed.items()} == {
        1: (None, "cpu_dynamic_quant"),
        2: ("FRACTAL_NZ", "cpu_quant_matmul_weight_nz"),
        3: ("FRACTAL_NZ", "cpu_quant_matmul_weight_nz"),
        4: ("ND", "cpu_quant_matmul_nd"),
        5: ("FRACTAL_NZ", "cpu_quant_matmul_weight_nz"),
        6: ("FRACTAL_NZ", "cpu_matmul_weight_nz"),
        7: ("ND", "aten::mm"),
        8: ("FRACTAL_NZ", "cpu_grouped_matmul_weight_nz"),
        9: ("FRACTAL_NZ", "cpu_grouped_matmul_weight_nz"),
        10: ("ND", "cpu_quant_matmul_nd"),
    }
    assert observed[4]["strides_w"] == observed[5]["strides_w"] == [128, 1]
    assert observed[10]["strides_w"] == [1, 256]
    (untimed,) = tables.samples.filter(_is(tables.samples, 2)).to_pylist()
    assert (untimed["duration_ns"], untimed["null_reason"]) == (None, "tuple_input")
    started, ended = tables.captures["started_ns"][0].as_py(), tables.captures["ended_ns"][0].as_py()
    assert all(started < start < ended for start in tables.kernels["start_ns"].to_pylist())


def _is(table: Any, number: int) -> Any:
    import pyarrow.compute as pc

    return pc.equal(table["point_id"], f"{number:016x}")
