"""Traces of torch's profiler: kernels by point and order, exact times, counts that must agree."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewatch.data_contracts import schema
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.torch_trace import Calls, read_torch_trace
from tilewatch.tasks.read.result import ReadResult

ORIGIN = Origin("c" * 32, "01J", "x", "y", "B", "nz", "measured", 0)
BASE_NS = 1_790_857_026_000_000_000
QUANT_MATMUL = "npu::npu_quant_matmul"
DYNAMIC_QUANT = "npu::npu_dynamic_quant"

Read = Callable[..., ReadResult]


def event(name: str, ts: str, dur: str, tid: int = 1, **arguments: Any) -> str:
    """One complete event as the profiler writes it: numbers with the digits it would write."""
    category = "user_annotation" if name.startswith("point:") else "cpu_op"
    return (
        f'{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 1, "tid": {tid}, '
        f'"ts": {ts}, "dur": {dur}, "args": {json.dumps(arguments)}}}'
    )


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def make(events: list[str], calls: dict[str, Calls] | None = None) -> ReadResult:
        path = tmp_path / "trace.json"
        text = (
            f'{{"schemaVersion": 1, "baseTimeNanoseconds": {BASE_NS}, "traceEvents": [{",".join(events)}]}}'
        )
        path.write_text(text)
        return read_torch_trace(path, "profiler/trace.json", ORIGIN, calls or {})

    return make


INPUTS = {
    "Input Dims": [[8, 1024], [1024, 512], [512], [], [8], [], []],
    "Input type": ["signed char", "signed char", "c10::BFloat16", "", "float", "Scalar", "ScalarList"],
}


def test_a_kernel_has_its_point_exact_times_shapes_dtypes_and_formats(read: Read) -> None:
    found = read(
        [
            event("point:aa", "5114490970162.826", "99.001"),
            event(QUANT_MATMUL, "5114490970163.827", "11.743", **INPUTS),
        ],
        {"aa": Calls({QUANT_MATMUL: 1}, "FRACTAL_NZ")},
    )
    (row,) = found.table.to_pylist()
    assert found.table.schema == schema("kernels")
    assert (row["point_id"], row["op_type"], row["task_type"]) == ("aa", QUANT_MATMUL, "CPU")
    assert (row["start_ns"], row["duration_ns"]) == (BASE_NS + 5_114_490_970_163_827, 11_743)
    assert row["input_shapes"] == [[8, 1024], [1024, 512], [512], [8]]
    assert row["input_dtypes"] == ["int8", "int8", "bfloat16", "float32"]
    assert row["input_formats"] == ["ND", "FRACTAL_NZ", "ND", "ND"]
    assert (row["source_file"], row["source_line"], row["flags"]) == ("profiler/trace.json", 2, [])
    assert found.quarantine.num_rows == 0


def test_tensor_lists_are_opened(read: Read) -> None:
    arguments = {
        "Input Dims": [[[8, 64]], [[2, 64, 32]], [], [[2, 32]], [2]],
        "Input type": ["TensorList", "TensorList", "", "TensorList", "long int"],
    }
    found = read([event("point:aa", "1", "9"), event("npu::npu_grouped_matmul", "2", "3", **arguments)])
    (row,) = found.table.to_pylist()
    assert row["input_shapes"] == [[8, 64], [2, 64, 32], [2, 32], [2]]
    assert row["input_dtypes"] == [None, None, None, "int64"]


def test_host_operators_inside_a_kernel_are_no_kernels(read: Read) -> None:
    found = read(
        [
            event("point:aa", "0", "100"),
            event("aten::matmul", "9", "22"),
            event("aten::mm", "10", "20"),
            event("aten::mm", "12", "5"),
            event("aten::_int_mm", "13", "2"),
            event("aten::mm", "40", "20"),
        ]
    )
    assert found.table["op_type"].to_pylist() == ["aten::mm", "aten::mm"]
    assert found.table["duration_ns"].to_pylist() == [20_000, 20_000]


def test_kernels_go_to_the_range_they_lie_in_in_order_of_their_start(read: Read) -> None:
    found = read(
        [
            event(DYNAMIC_QUANT, "0.5", "0.2"),
            event("point:bb", "20", "10"),
            event(QUANT_MATMUL, "22", "2"),
            event("point:aa", "1", "10"),
            event(QUANT_MATMUL, "5", "2"),
            event(DYNAMIC_QUANT, "2", "2"),
            event(QUANT_MATMUL, "6.5", "2", tid=2),
        ]
    )
    assert found.table["point_id"].to_pylist() == [None, "aa", "aa", "bb"]
    assert found.table["op_type"].to_pylist() == [DYNAMIC_QUANT, DYNAMIC_QUANT, QUANT_MATMUL, QUANT_MATMUL]
    assert found.table["kernel_index"].to_pylist() == [0, 1, 2, 3]


def test_a_count_that_differs_from_the_calls_is_flagged_and_reported(read: Read) -> None:
    events = [event("point:aa", "0", "9"), event(QUANT_MATMUL, "1", "1"), event("point:bb", "20", "9")]
    events += [event(QUANT_MATMUL, "21", "1")]
    calls = {
        "aa": Calls({QUANT_MATMUL: 1}, "ND"),
        "bb": Calls({QUANT_MATMUL: 1, DYNAMIC_QUANT: 1}, "ND"),
    }
    found = read(events, calls)
    assert found.table["flags"].to_pylist() == [[], ["kernel_count_mismatch"]]
    (refused,) = found.quarantine.to_pylist()
    assert (refused["rule"], refused["value"]) == ("kernel_count", "bb")
    assert refused["reason"] == f"{DYNAMIC_QUANT}: 1 calls left 0"


def test_an_unexpected_kernel_in_a_range_is_reported(read: Read) -> None:
    events = [event("point:aa", "0", "9"), event(QUANT_MATMUL, "1", "1"), event(DYNAMIC_QUANT, "3", "1")]
    found = read(events, {"aa": Calls({QUANT_MATMUL: 1}, "ND")})
    assert [row["reason"] for row in found.quarantine.to_pylist()] == [f"{DYNAMIC_QUANT}: 0 calls left 1"]


def test_an_event_without_a_time_goes_to_quarantine_alone(read: Read) -> None:
    events = [event("point:aa", "0", "9"), event(QUANT_MATMUL, '"later"', "1"), event(QUANT_MATMUL, "3", "1")]
    found = read(events)
    assert found.table.num_rows == 1
    (refused,) = found.quarantine.to_pylist()
    assert (refused["source_line"], refused["rule"]) == (2, "trace_event")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"traceEvents": 3}', '{"traceEvents": [3]}', '{"other": []}']
)
def test_a_file_that_is_no_trace_gives_no_rows_and_one_refusal(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace.json").write_text(text)
    found = read_torch_trace(tmp_path / "trace.json", "profiler/trace.json", ORIGIN, {})
    assert found.table.schema == schema("kernels") and found.table.num_rows == 0
    assert [row["rule"] for row in found.quarantine.to_pylist()] == ["trace"]


def test_a_trace_without_any_operator_is_empty(read: Read) -> None:
    assert read([event("aten::add", "1", "1")]).table.num_rows == 0
