"""Points with their kernels and tiling records; nothing is filled in."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.align.left import Left
from tilewatch.data_contracts import from_rows, schema
from tilewatch.tasks.align.alignments import alignments_table
from tilewatch.tasks.align.points import points_table
from tilewatch.tasks.plan.run_document import RunDocument


def aligned(document: RunDocument, left: Left, tilings: pa.Table | None = None) -> pa.Table:
    t = left.tables()
    points = points_table(document, "B", t["captures"], t["observed"])
    tilings = schema("tilings").empty_table() if tilings is None else tilings
    return alignments_table(points, t["captures"], t["observed"], t["kernels"], tilings)


def tiling(left: Left, index: int, **fields: object) -> pa.Table:
    capture, seen = left.captures[0], left.observed[index]
    row = {
        **{k: capture[k] for k in ("capture_id", "run_id", "build", "build_id", "experiment", "arm")},
        "point_id": seen["point_id"],
        "op_type": "QuantBatchMatmulV3",
        "tiling_key": "10000900009000090002",
        "base_m": 16,
        "pid": 1,
        **fields,
    }
    return from_rows("tilings", [row])


def test_the_cpu_has_no_tiling_and_nothing_is_filled_in(document: RunDocument) -> None:
    table = aligned(document, Left(document, "B"))
    assert set(table["status"].to_pylist()) == {"no_tiling"}
    assert set(table["reason"].to_pylist()) == {"agent cpu has no tiling"}
    assert table["tiling_key"].null_count == table.num_rows


def test_every_profiled_call_left_exactly_one_main_kernel(document: RunDocument) -> None:
    table = aligned(document, Left(document, "B"))
    assert table["calls"].to_pylist() == [4] * 9
    assert table["kernel_count"].to_pylist() == table["expected_kernel_count"].to_pylist() == [4] * 9
    assert set(table["kernel_op_type"].to_pylist()) == {"npu::npu_quant_matmul", "aten::mm"}


def test_a_tuple_input_shows_zero_dynamic_quant_kernels_and_a_standalone_one_shows_all(
    document: RunDocument,
) -> None:
    table = aligned(document, Left(document, "B"))
    by_arm = {
        arm: set(table.filter(pc.field("arm") == arm)["dynamic_quant_kernel_count"].to_pylist())
        for arm in ("standalone", "tuple_input")
    }
    assert by_arm == {"standalone": {4}, "tuple_input": {0}}


def test_a_lost_kernel_shows_as_a_count_that_differs_from_the_calls(document: RunDocument) -> None:
    left = Left(document, "B")
    left.kernels = [k for k in left.kernels if k is not left.kernels[-1]]
    table = aligned(document, left)
    differs = table.filter(pc.not_equal(table["kernel_count"], table["expected_kernel_count"]))
    assert differs.num_rows == 1 and differs["kernel_count"].to_pylist() == [3]


def test_the_format_in_the_kernels_inputs_is_kept_beside_the_requested_one(document: RunDocument) -> None:
    left = Left(document, "B")
    for kernel in left.kernels:
        if kernel["arm"] == "tuple_input":
            kernel["input_formats"] = ["ND", "ND"]
    table = aligned(document, left)
    formats = dict(zip(table["arm"].to_pylist(), table["kernel_weight_format"].to_pylist(), strict=True))
    assert formats == {"standalone": "FRACTAL_NZ", "tuple_input": "ND", "bf16": "FRACTAL_NZ"}


@pytest.fixture
def on_npu(document: RunDocument) -> Left:
    """As if the agent had been an NPU, whose tiling processes leave records."""
    left = Left(document, "B")
    for capture in left.captures:
        capture["agent"] = "npu"
    return left


def test_an_observed_record_aligns_the_point_and_the_others_say_that_none_was(
    document: RunDocument, on_npu: Left
) -> None:
    table = aligned(document, on_npu, tiling(on_npu, 0, single_n=256))
    row = table.filter(pc.field("status") == "aligned").to_pylist()
    assert row[0]["single_n"] == 256
    assert len(row) == 1 and row[0]["tiling_key"] == "10000900009000090002" and row[0]["base_m"] == 16
    rest = table.filter(pc.field("status") == "unaligned")
    assert rest.num_rows == 8 and set(rest["reason"].to_pylist()) == {
        "no tiling record was observed for the point"
    }


def test_two_different_records_of_one_point_leave_it_unaligned(document: RunDocument, on_npu: Left) -> None:
    two = pa.concat_tables([
        tiling(on_npu, 0, tiling_index=0), tiling(on_npu, 0, tiling_index=1, base_m=32),
    ])  # fmt: skip
    table = aligned(document, on_npu, two)
    assert "aligned" not in table["status"].to_pylist()
    assert "2 different tiling records for the same point" in table["reason"].to_pylist()
    assert table["base_m"].null_count == table.num_rows


@pytest.mark.parametrize(
    ("asked", "saw", "reason"),
    [
        (None, None, None),
        (None, 0, None),
        (8, 8, None),
        (8, 0, "the tiling saw hint 0, asked for was 8"),
        (None, 8, "the tiling saw hint 8, asked for was none"),
        (8, None, "the log does not show the tuning hint that was asked for"),
    ],
)
def test_a_hint_counts_only_where_the_log_shows_that_the_tiling_saw_it(
    document: RunDocument, on_npu: Left, asked: int | None, saw: int | None, reason: str | None
) -> None:
    left = on_npu
    t = left.tables()
    points = points_table(document, "B", t["captures"], t["observed"])
    hints = pa.array([asked] * points.num_rows, pa.int64())
    points = points.set_column(points.schema.get_field_index("tuning_config"), "tuning_config", hints)
    logged = tiling(left, 0, tuning_config=saw)
    table = alignments_table(points, t["captures"], t["observed"], t["kernels"], logged)
    mine = table.filter(
        pc.and_(
            pc.equal(table["point_id"], left.observed[0]["point_id"]),
            pc.equal(table["arm"], left.captures[0]["arm"]),
        )
    )
    expected = ("aligned", "10000900009000090002") if reason is None else ("unaligned", None)
    assert (mine["status"][0].as_py(), mine["tiling_key"][0].as_py()) == expected
    assert mine["reason"].to_pylist() == [reason]
