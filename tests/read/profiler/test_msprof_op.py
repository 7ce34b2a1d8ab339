"""msprof op: a comma at every line's end, NA for no value, a row a core block."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import msprof_op
from tilewatch.tasks.read.profiler.profiler_folder import read_profiler

BASIC = (
    "Op Name,Op Type,Task Duration(us),Block Dim,Mix Block Dim,Device Id,Pid,Current Freq,Rated Freq,\n"
    "matmul_custom,mix,12.340000,20,40,3,4711,1650,1800,\n"
)
PIPES = (
    "block_id,sub_block_id,aic_time(us),aic_total_cycles,aic_cube_ratio,aiv_time(us),aiv_vec_ratio,\n"
    "0,cube0,10.500000,1234,0.500000,NA,NA,\n"
    "0,vector0,NA,NA,NA,9.250000,0.000000,\n"
    "0,vector1,NA,NA\n"
)


def make(folder: Path) -> Path:
    place = folder / "OPPROF_20260522113006_ABCD" / "device3" / "matmul_custom" / "1"
    place.mkdir(parents=True)
    (place / "OpBasicInfo_20260522113006123.csv").write_text(BASIC)
    (place / "PipeUtilization_20260522113006123.csv").write_text(PIPES)
    return place


def test_op_basic_info_is_one_kernel_without_a_start(tmp_path: Path, origin: Origin) -> None:
    result = msprof_op.read(make(tmp_path) / "OpBasicInfo_20260522113006123.csv", origin)
    (row,) = result.table.to_pylist()
    assert (row["name"], row["task_type"], row["duration_ns"], row["start_ns"]) == (
        "matmul_custom",
        "mix",
        12340,
        None,
    )
    assert (row["block_dim"], row["mix_block_dim"], row["device_id"]) == (20, 40, 3)
    assert row["aiv_aic_ratio"] is None
    assert dict(row["metrics"]) == {"Current Freq": 1650.0, "Rated Freq": 1800.0}


def test_counters_come_a_row_a_block_and_na_is_no_value(tmp_path: Path, origin: Origin) -> None:
    make(tmp_path)
    results = read_profiler(tmp_path, origin)
    (result,) = [r for name, r in results.items() if "PipeUtilization" in name]
    cube, vector = result.table.to_pylist()
    assert (cube["op_name"], cube["launch_index"], cube["device_id"]) == ("matmul_custom", 1, 3)
    assert dict(cube["metrics"]) == {"aic_time(us)": 10.5, "aic_total_cycles": 1234.0, "aic_cube_ratio": 0.5}
    assert (vector["sub_block_id"], dict(vector["metrics"])) == (
        "vector0",
        {"aiv_time(us)": 9.25, "aiv_vec_ratio": 0.0},
    )
    assert result.quarantine["source_line"].to_pylist() == [4]


def test_a_file_of_another_name_is_no_file_of_msprof_op(tmp_path: Path, origin: Origin) -> None:
    with pytest.raises(ValueError, match="kernel_details.csv is no file of msprof op"):
        msprof_op.read(tmp_path / "kernel_details.csv", origin)


def test_a_file_without_any_column_of_numbers_is_refused(tmp_path: Path, origin: Origin) -> None:
    path = tmp_path / "Memory.csv"
    path.write_text("first,second\na,b\n")
    result = msprof_op.read(path, origin)
    assert result.quarantine["reason"].to_pylist() == ["no column of this format and no column of numbers"]
