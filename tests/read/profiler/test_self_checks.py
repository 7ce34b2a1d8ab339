"""What the profiler said twice must agree, and a check that fails names the rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewatch.data_contracts import from_rows, schema
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.launch_links import with_launches
from tilewatch.tasks.read.profiler.self_checks import (
    check_rows,
    databases_equal_files,
    statistic_equals_kernels,
    steps_equal_unions,
    union_ns,
)

START = 1764246877079027200


@pytest.fixture
def kernel(origin: Origin) -> Any:
    def make(index: int, start: int, duration: int, **more: Any) -> dict[str, Any]:
        base = {"kernel_index": index, "name": f"k{index}", "op_type": "MatMulV3", "task_type": "AI_CORE"}
        times = {"start_ns": START + start, "duration_ns": duration, "step_id": 1, "category": "dense"}
        place = {"source_file": "kernel_details.csv", "source_line": index + 2}
        return {**origin.columns(), **base, **times, **place, **more}

    return make


def kernels(*rows: dict[str, Any]) -> pa.Table:
    return from_rows("kernels", rows)


def operator(origin: Origin, count: int, total: int, op_type: str = "MatMulV3") -> pa.Table:
    row = {"op_type": op_type, "task_type": "AI_CORE", "count": count, "total_ns": total}
    return from_rows(
        "operators", [{**origin.columns(), **row, "source_file": "s", "row_index": 0, "source_line": 2}]
    )


def step(origin: Origin, computing: int, communication: int) -> pa.Table:
    row = {"step_id": 1, "computing_ns": computing, "communication_ns": communication}
    return from_rows(
        "steps", [{**origin.columns(), **row, "source_file": "s", "row_index": 0, "source_line": 2}]
    )


@pytest.mark.parametrize(
    ("count", "total", "failed"), [(2, 300, 0), (2, 310, 0), (2, 311, 1), (3, 300, 1), (2, 289, 1)]
)
def test_op_statistic_must_match_to_a_hundredth_microsecond(
    origin: Origin, kernel: Any, count: int, total: int, failed: int
) -> None:
    table = kernels(kernel(0, 0, 100), kernel(1, 500, 200))
    check = statistic_equals_kernels("op_statistic.csv", operator(origin, count, total), table)
    assert (check.failed_count, check.row_count) == (failed, 1)


def test_a_type_that_only_one_side_knows_fails_but_communication_does_not(
    origin: Origin, kernel: Any
) -> None:
    hcom = kernel(1, 0, 5, op_type="hcom_allReduce_", task_type="COMMUNICATION")
    assert not statistic_equals_kernels(
        "s", operator(origin, 1, 100), kernels(kernel(0, 0, 100), hcom)
    ).failed_count
    check = statistic_equals_kernels("s", operator(origin, 1, 100, "Cast"), kernels(kernel(0, 0, 100)))
    assert check.failed_count == 2
    assert "Cast/AI_CORE: op_statistic counts 1, the kernel rows None" in check.detail


def test_computing_is_a_union_not_a_sum(origin: Origin, kernel: Any) -> None:
    rows = kernels(
        kernel(0, 0, 1000), kernel(1, 500, 1000), kernel(2, 600, 10), kernel(3, 5000, 100),
        kernel(4, 0, 700, task_type="COMMUNICATION"), kernel(5, 0, 9999, step_id=2),
    )  # fmt: skip
    assert steps_equal_unions("s", step(origin, 1600, 700), rows).failed_count == 0
    check = steps_equal_unions("s", step(origin, 2110, 700), rows)
    assert check.detail == "step 1: computing_ns is 2110, the kernel rows cover 1600"


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12))
def test_the_union_counts_every_covered_nanosecond_once(intervals: list[tuple[int, int]]) -> None:
    table = pa.table(
        {
            "start_ns": pa.array([start for start, _ in intervals], pa.int64()),
            "duration_ns": pa.array([duration for _, duration in intervals], pa.int64()),
        }
    )
    covered = {tick for start, duration in intervals for tick in range(start, start + duration)}
    assert union_ns(table) == len(covered)


def test_a_database_that_is_one_nanosecond_off_fails_by_name(kernel: Any) -> None:
    one = kernels(kernel(0, 0, 100), kernel(1, 500, 200))
    other = kernels(kernel(0, 0, 100), kernel(1, 501, 200))
    assert databases_equal_files("p.db", one, one).failed_count == 0
    check = databases_equal_files("p.db", other, one)
    assert check.failed_count == 2
    assert f"k1 at {START + 501} for 200 ns: 1 times in the database, 0 times in the files" in check.detail


def test_checks_are_rows_of_their_contract_with_stable_ids(origin: Origin, kernel: Any) -> None:
    check = databases_equal_files("p.db", kernels(kernel(0, 0, 1)), kernels(kernel(0, 0, 2)))
    first, second = check_rows(origin, [check]), check_rows(origin, [check])
    assert first.schema.equals(schema("checks"))
    assert first.equals(second)
    (row,) = first.to_pylist()
    assert (row["success"], row["failed_count"], row["expectation"]) == (False, 2, "self_check")


def test_launches_are_linked_by_name_and_start_within_a_microsecond(kernel: Any) -> None:
    csv = kernels(
        kernel(0, 0, 10), kernel(1, 100, 10, flags=["odd"]), kernel(2, 5000, 10), kernel(3, 9000, 10),
        kernel(4, 9000, 10, start_ns=None), kernel(5, 20000, 10, stream_id=7),
    )  # fmt: skip
    timeline = kernels(
        kernel(0, 1, 10, host_enqueue_ns=START - 50),
        kernel(1, 100, 10, host_enqueue_ns=START + 130),
        kernel(2, 6500, 10, host_enqueue_ns=START),
        kernel(3, 9000, 10, host_enqueue_ns=None),
        kernel(5, 20000, 10, stream_id=8, host_enqueue_ns=START),
    )
    linked, facts = with_launches(csv, timeline)
    assert linked.schema.equals(schema("kernels"))
    assert linked["launch_latency_ns"].to_pylist() == [50, -30, None, None, None, None]
    assert linked["flags"].to_pylist()[1] == ["odd", "negative_launch_latency"]
    assert (facts["linked"], facts["not_linked"], facts["negative_latencies"]) == (2, 4, 1)


def test_without_a_timeline_row_nothing_is_linked(kernel: Any) -> None:
    csv = kernels(kernel(0, 0, 10))
    linked, facts = with_launches(csv, schema("kernels").empty_table())
    assert linked.equals(csv)
    assert facts["linked"] == 0
