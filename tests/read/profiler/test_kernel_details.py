"""kernel_details.csv and op_summary: real values, every header variant, odd rows set apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewatch.data_contracts import schema
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import kernel_details, op_summary

CANN83 = "samples/profiler/msinsight-st-level2-cann83rc1/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT"
SHAPES = '"""8,4096;1024,4096"""'
HEADER = (
    "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),"
    "Duration(us),Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,"
    "Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID,"
    "aicore_time(us),aic_total_cycles,aic_mac_ratio,aiv_time(us),"
    "aiv_total_cycles,aiv_vec_ratio,cube_utilization(%)"
)
ROW = (
    "13,0,4294967295,7,2,aclnnX_QuantBatchMatmulV3_QuantBatchMatmulV3,QuantBatchMatmulV3,dynamic,MIX_AIC,"
    f"1764246877079027.201\t,170.400,322.690000,20,40,NO,{SHAPES},INT8;INT8,ND;FRACTAL_NZ,"
    '"""8,1024""",DT_BF16,FORMAT_ND,N/A,165.835,5472561,0.78,12.5,1000,0.0,97.321'
)


def read_text(tmp_path: Path, origin: Origin, text: str | bytes, name: str = "kernel_details.csv") -> Any:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return kernel_details.read(path, origin)


def test_times_of_a_real_file_are_exact_to_the_nanosecond(shared: Path, origin: Origin) -> None:
    table = kernel_details.read(shared / CANN83 / "kernel_details.csv", origin).table
    assert table.num_rows == 2463
    first = table.slice(0, 1).to_pylist()[0]
    assert (first["start_ns"], first["duration_ns"], first["wait_ns"]) == (1764246877073569640, 1892920, 0)
    assert first["source_line"] == 2
    assert first["input_shapes"] == [[375815680]]
    assert sum(table["duration_ns"].to_pylist()) == 651464360


def test_a_row_fills_every_column_that_the_file_has(tmp_path: Path, origin: Origin) -> None:
    result = read_text(tmp_path, origin, f"{HEADER}\n{ROW}\n")
    assert result.table.schema.equals(schema("kernels"))
    (row,) = result.table.to_pylist()
    assert row["start_ns"] == 1764246877079027201
    assert (row["duration_ns"], row["wait_ns"], row["process_index"]) == (170400, 322690, 3)
    assert row["input_shapes"] == [[8, 4096], [1024, 4096]]
    assert row["input_dtypes"] == ["INT8", "INT8"]
    assert row["input_formats"] == ["ND", "FRACTAL_NZ"]
    assert (row["output_shapes"], row["output_dtypes"], row["output_formats"]) == (
        [[8, 1024]],
        ["BF16"],
        ["ND"],
    )
    assert (row["block_dim"], row["mix_block_dim"], row["aiv_aic_ratio"]) == (20, 40, "2:1")
    assert (row["step_id"], row["stream_id"], row["task_id"], row["context_id"]) == (13, 2, 7, None)
    assert row["category"] == "dense"
    assert dict(row["metrics"])["aic_total_cycles"] == 5472561
    assert dict(row["metrics"])["aiv_vec_ratio"] == 0.0


@pytest.mark.parametrize(
    ("core", "kept", "dropped"),
    [("AI_CORE", "aic_mac_ratio", "aiv_vec_ratio"), ("AI_VECTOR_CORE", "aiv_vec_ratio", "aic_mac_ratio")],
)
def test_zeros_of_a_core_that_did_not_run_are_no_measurement(
    tmp_path: Path, origin: Origin, core: str, kept: str, dropped: str
) -> None:
    cells = "0.0,0,0.0,12.5,1000,0.3,0.000" if core == "AI_VECTOR_CORE" else "165.8,5472561,0.0,0.0,0,0.0,0.0"
    row = ROW.replace("MIX_AIC", core).rsplit(",", 7)[0] + "," + cells
    (read,) = read_text(tmp_path, origin, f"{HEADER}\n{row}\n").table.to_pylist()
    assert kept in dict(read["metrics"])
    assert dropped not in dict(read["metrics"])


def test_times_that_level_0_writes_as_zero_beside_cycles_are_no_measurement(
    tmp_path: Path, origin: Origin
) -> None:
    row = ROW.rsplit(",", 7)[0] + ",0.0,5472561,0.78,0.0,0,0.0,0.0"
    (read,) = read_text(tmp_path, origin, f"{HEADER}\n{row}\n").table.to_pylist()
    assert dict(read["metrics"]) == {
        "aic_total_cycles": 5472561.0,
        "aic_mac_ratio": 0.78,
        "cube_utilization(%)": 0.0,
    }


@pytest.mark.parametrize(
    "header",
    [
        HEADER.replace("Block Dim", "Block Num"),
        HEADER.replace("Name,Type", "Op Name,OP Type").replace("Accelerator Core", "Task Type"),
        HEADER.replace("Start Time(us),Duration(us),Wait", "Task Start Time(us),Task Duration(us),Task Wait"),
    ],
)
def test_a_renamed_column_is_still_found(tmp_path: Path, origin: Origin, header: str) -> None:
    path = tmp_path / "op_summary_20260522113006.csv"
    path.write_text(f"{header}\n{ROW}\n")
    (row,) = op_summary.read(path, origin).table.to_pylist()
    assert (row["block_dim"], row["mix_block_dim"], row["duration_ns"]) == (20, 40, 170400)
    assert (row["op_type"], row["task_type"]) == ("QuantBatchMatmulV3", "MIX_AIC")


def test_a_row_that_lost_its_duration_is_refused_though_it_was_padded(tmp_path: Path, origin: Origin) -> None:
    shifted = ROW.replace(",170.400,", ",") + ",0"
    result = read_text(tmp_path, origin, f"{HEADER}\n{ROW}\n{shifted}\n{ROW}\n")
    assert result.table["source_line"].to_pylist() == [2, 4]
    (refused,) = result.quarantine.to_pylist()
    assert (refused["source_line"], refused["field"], refused["value"]) == (3, "Mix Block Dim", "NO")
    assert refused["raw_text"] == shifted
    assert refused["rule"] == "cell_type"


def test_a_real_row_that_lost_its_duration_is_refused_by_line(shared: Path, origin: Origin) -> None:
    folder = shared / "samples/profiler/msinsight-server-ut"
    result = kernel_details.read(folder / "test_rank_0/ASCEND_PROFILER_OUTPUT/kernel_details.csv", origin)
    assert result.table.num_rows == 20
    (refused,) = result.quarantine.to_pylist()
    assert (refused["source_line"], refused["reason"]) == (17, "31 cells where the header has 32")
    assert "1695115378795017.5,1.8414,24" in refused["raw_text"]


def test_a_start_without_value_keeps_the_row_and_flags_it(tmp_path: Path, origin: Origin) -> None:
    row = ROW.replace("1764246877079027.201\t", "N/A")
    (read,) = read_text(tmp_path, origin, f"{HEADER}\n{row}\n").table.to_pylist()
    assert (read["start_ns"], read["duration_ns"], read["flags"]) == (None, 170400, ["no_start_time"])


@pytest.mark.parametrize(
    ("cell", "rule"),
    [("N/A", "required"), ("-1.000", "range"), ("1.2E+05", "digits_lost"), ("x", "cell_type")],
)
def test_a_duration_that_is_none_is_refused(tmp_path: Path, origin: Origin, cell: str, rule: str) -> None:
    result = read_text(tmp_path, origin, f"{HEADER}\n{ROW.replace('170.400', cell)}\n{ROW}\n")
    assert result.table["source_line"].to_pylist() == [3]
    (refused,) = result.quarantine.to_pylist()
    assert (refused["rule"], refused["field"], refused["value"]) == (rule, "Duration(us)", cell)


def test_a_time_that_a_spreadsheet_cut_is_refused_not_rounded(tmp_path: Path, origin: Origin) -> None:
    result = read_text(tmp_path, origin, f"{HEADER}\n{ROW.replace('1764246877079027.201', '1.76425E+15')}\n")
    assert result.table.num_rows == 0
    assert result.quarantine["value"].to_pylist() == ["1.76425E+15\t"]


def test_more_decimals_than_nanoseconds_are_rounded_half_away_from_zero(
    tmp_path: Path, origin: Origin
) -> None:
    rows = "\n".join(ROW.replace("170.400", cell) for cell in ("932.0498", "0.0005", "1.00049999999999"))
    result = read_text(tmp_path, origin, f"{HEADER}\n{rows}\n")
    assert result.table["duration_ns"].to_pylist() == [932050, 1, 1000]


def test_level_0_has_neither_type_nor_core(shared: Path, origin: Origin) -> None:
    path = shared / "samples/profiler/msinsight-pytorch-text/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"
    table = kernel_details.read(path / "kernel_details.csv", origin).table
    first = table.slice(0, 1).to_pylist()[0]
    assert (first["name"], first["op_type"], first["task_type"]) == ("trans_TransData_0", None, None)
    assert (first["block_dim"], first["category"]) == (None, "other")


def test_a_git_lfs_pointer_is_named_as_such(shared: Path, origin: Origin) -> None:
    path = shared / "samples/profiler/msmodeling-opdb-A3/forward_pass_traces/dsv3_dc_1tok.csv"
    result = kernel_details.read(path, origin)
    assert result.table.num_rows == 0
    assert "Git LFS pointer" in result.quarantine["reason"].to_pylist()[0]


def test_an_empty_file_is_refused_as_a_whole(tmp_path: Path, origin: Origin) -> None:
    result = read_text(tmp_path, origin, "")
    assert result.quarantine["reason"].to_pylist() == ["the file has no bytes"]
    assert result.quarantine["source_line"].to_pylist() == [None]


def test_a_column_twice_is_refused_because_either_could_be_meant(tmp_path: Path, origin: Origin) -> None:
    result = read_text(tmp_path, origin, f"{HEADER},Duration(us)\n{ROW},1.0\n")
    assert result.quarantine["reason"].to_pylist() == ["more than one column for duration_ns"]


@pytest.mark.parametrize("before", [0, 1])
def test_a_byte_order_mark_inside_the_file_costs_its_line(
    tmp_path: Path, origin: Origin, before: int
) -> None:
    text = f"{HEADER}\n" + f"{ROW}\n" * before + f"\ufeff{ROW}\n{ROW}\n"
    result = read_text(tmp_path, origin, text)
    assert result.table["source_line"].to_pylist() == [*range(2, 2 + before), 3 + before]
    (refused,) = result.quarantine.to_pylist()
    assert (refused["source_line"], refused["rule"]) == (2 + before, "row_structure")
    assert refused["reason"] == "byte order mark inside the file"


def test_an_unknown_column_of_words_is_left_out_and_named(tmp_path: Path, origin: Origin) -> None:
    result = read_text(tmp_path, origin, f"{HEADER},Comment\n{ROW},good\n{ROW},bad\n")
    assert result.table.num_rows == 2
    assert result.facts["ignored_columns"] == ["Comment"]


def test_reading_the_same_bytes_again_gives_the_same_quarantine_ids(tmp_path: Path, origin: Origin) -> None:
    text = f"{HEADER}\nbad\n{ROW}\nbad\n"
    first, second = read_text(tmp_path, origin, text), read_text(tmp_path, origin, text)
    assert first.quarantine.num_rows == 2
    assert first.quarantine.equals(second.quarantine)
