"""The least time by bytes and operations, and samples that are faster than it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import yaml

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.align.impossible import RULE, refuse_impossible
from tilewatch.tasks.align.least_time import TABLE, Least, least_time, limits_of, work_of

C910 = limits_of("npu Ascend910_9391")
DENSE = {
    "operation": "quant_matmul", "m_executed": 16, "k": 4096, "n": 1024, "dtype_x": "int8", "dtype_w": "int8",
    "dtype_out": "bfloat16", "group_list": None,
}  # fmt: skip
GROUPED = {**DENSE, "operation": "grouped_matmul", "m_executed": 9216, "group_list": [3, 0, 5, 0]}


def test_a_dense_product_moves_weight_rows_and_output_and_multiplies_and_adds() -> None:
    work = work_of(DENSE)
    assert (work.weight_bytes, work.operations) == (4096 * 1024, 2 * 16 * 4096 * 1024)
    assert work.moved_bytes == 4096 * 1024 + 16 * 4096 + 16 * 1024 * 2


def test_experts_without_rows_and_padding_are_neither_read_nor_computed() -> None:
    work = work_of(GROUPED)
    assert (work.weight_bytes, work.operations) == (2 * 4096 * 1024, 2 * 8 * 4096 * 1024)


def test_a_quantisation_moves_its_rows_and_has_no_least_time() -> None:
    work = work_of({**DENSE, "operation": "dynamic_quant", "dtype_x": "bfloat16", "dtype_out": "int8"})
    assert (work.moved_bytes, work.operations) == (16 * (4096 * 3 + 4), 0)
    assert least_time(work, C910, "rotated") is None


def test_few_rows_are_bound_by_memory_and_many_by_compute() -> None:
    assert least_time(work_of(DENSE), C910, "rotated") == Least(int(4096 * 1024 / 1.75e12 * 1e9), "memory")
    many = least_time(work_of({**DENSE, "m_executed": 8192}), C910, "rotated")
    peak = 24 * 1850e6 * 16384 * 1.1
    assert many == Least(int(2 * 8192 * 4096 * 1024 / peak * 1e9), "compute")


def test_weights_that_stay_in_the_cache_are_not_bound_by_memory() -> None:
    warm = least_time(work_of(DENSE), C910, "warm")
    assert warm is not None and warm.bound == "compute"


def test_a_device_of_no_table_has_no_least_time() -> None:
    assert limits_of("cpu x86_64") is None and least_time(work_of(DENSE), None, "rotated") is None


def test_every_row_of_the_table_says_where_its_numbers_come_from() -> None:
    assert all(len(row["source"]) > 40 for row in yaml.safe_load(TABLE.read_text())["limits"])


def points(least_ns: int | None) -> pa.Table:
    row: dict[str, Any] = {
        "run_id": "r", "build": "b", "build_id": "i", "experiment": "B", "arm": "int8", "point_id": "p" * 16,
        "evidence": "measured", "control": False, "operator": "quant_matmul", "linear": "wq_a", "axis": "m",
        "axis_value": 16, "m": 16, "m_executed": 16, "k": 4096, "n": 1024, "dtype_x": "int8",
        "dtype_w": "int8", "dtype_out": "bfloat16", "weight_format_requested": "ND", "launch_mode": "eager",
        "transposed_w": False, "status": "present", "planned_processes": 1, "present_processes": 1,
        "command": "c", "least_ns": least_ns, "least_bound": None if least_ns is None else "memory",
    }  # fmt: skip
    return from_rows("points", [row])


def samples(*durations: int | None) -> pa.Table:
    same = {
        "capture_id": "c" * 32, "run_id": "r", "build": "b", "build_id": "i", "experiment": "B",
        "arm": "int8", "role": "main", "process_index": 0, "point_id": "p" * 16, "evidence": "measured",
        "method_hash": "m" * 16, "calls": 1, "warm_up": False, "position": 0, "discarded": False,
        "throttled": False, "source_file": "samples.jsonl",
    }  # fmt: skip
    return from_rows(
        "samples",
        [
            {**same, "sample": index, "source_line": index + 1, "duration_ns": length}
            for index, length in enumerate(durations)
        ],
    )


def test_a_sample_below_the_least_time_is_refused_with_the_numbers_and_the_others_stay() -> None:
    told, kept, refused = refuse_impossible(points(2396), samples(180, 2900, 3000))
    assert kept["duration_ns"].to_pylist() == [2900, 3000]
    (row,) = refused.to_pylist()
    assert (row["rule"], row["field"], row["value"]) == (RULE, "duration_ns", "180")
    assert "180 ns is less than the 2396 ns that memory allows" in row["reason"]
    (point,) = told.to_pylist()
    assert point["status"] == "present" and point["status_reason"].startswith("1 samples refused: 180 ns")


def test_a_point_that_was_a_no_op_in_every_sample_is_missing() -> None:
    told, kept, refused = refuse_impossible(points(2396), samples(180, 190))
    assert kept.num_rows == 0 and refused.num_rows == 2
    assert told["status"].to_pylist() == ["missing"]


def test_times_that_can_be_and_points_without_a_bound_are_taken_as_they_are() -> None:
    for least in (2396, None):
        told, kept, refused = refuse_impossible(points(least), samples(2400, None))
        assert kept.num_rows == 2 and refused.num_rows == 0 and told["status"].to_pylist() == ["present"]


@pytest.mark.parametrize("soc", ["Ascend910_9391", "Ascend910B2", "Ascend950PR_9599"])
def test_published_times_of_these_devices_are_possible(soc: str) -> None:
    """W8A8 with quantisation on a 910B, M 1, K 16384 N 16384: 185.5 µs; M 16384, K 4096 N 4096: 1180.7 µs."""
    for m, k, n, microseconds in ((1, 16384, 16384, 185.5), (16384, 4096, 4096, 1180.7)):
        work = work_of({**DENSE, "m_executed": m, "k": k, "n": n})
        found = least_time(work, limits_of(soc), "rotated")
        assert found is not None and found.ns < microseconds * 1000
