"""SQLite exports: the same kernels as the CSVs, every schema, opened without a trace."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import analysis_db, kernel_details, profiler_db
from tilewatch.tasks.read.profiler.self_checks import databases_equal_files

DB = "samples/profiler/msinsight-pytorch-db"
MakeDatabase = Callable[..., None]

CANN83 = "samples/profiler/msinsight-st-level2-cann83rc1/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT"
COMPARED = (
    "name", "op_type", "task_type", "category", "start_ns", "duration_ns", "block_dim", "mix_block_dim",
    "aiv_aic_ratio", "input_shapes", "input_dtypes", "input_formats", "output_shapes", "stream_id", "task_id",
    "context_id",
)  # fmt: skip


@pytest.mark.parametrize(
    ("block", "mix"), [("blockNum", "mixBlockNum"), ("blockDim", "mixBlockDim"), ("block_dim", "mixBlockDim")]
)
def test_a_database_of_any_schema_holds_what_the_csv_holds(
    shared: Path, tmp_path: Path, origin: Origin, make_database: MakeDatabase, block: str, mix: str
) -> None:
    csv = kernel_details.read(shared / CANN83 / "kernel_details.csv", origin).table
    make_database(tmp_path / "msprof_20260522113006.db", csv.to_pylist(), block, mix)
    result = profiler_db.read(tmp_path / "msprof_20260522113006.db", origin)
    result.table.validate(full=True)
    assert (result.table.num_rows, result.quarantine.num_rows) == (2463, 0)
    assert result.facts["schema_version"] == "1.2.0"
    check = databases_equal_files("msprof.db", result.table, csv)
    assert (check.failed_count, check.row_count) == (0, 2463)
    keys = [("start_ns", "ascending"), ("name", "ascending")]
    for column in COMPARED:
        assert result.table.sort_by(keys)[column].to_pylist() == csv.sort_by(keys)[column].to_pylist(), column


def test_launch_times_and_counters_of_a_database_are_in_the_units_of_the_csv(
    shared: Path, tmp_path: Path, origin: Origin, make_database: MakeDatabase
) -> None:
    csv = kernel_details.read(shared / CANN83 / "kernel_details.csv", origin).table.slice(0, 50)
    make_database(tmp_path / "p.db", csv.to_pylist())
    rows = profiler_db.read(tmp_path / "p.db", origin).table.to_pylist()
    assert {row["launch_latency_ns"] for row in rows if row["task_type"] != "COMMUNICATION"} == {700}
    assert {dict(row["metrics"])["aic_mac_time(us)"] for row in rows if row["metrics"]} == {1.5}


def test_a_real_database_gives_exact_times_shapes_and_counters(shared: Path, origin: Origin) -> None:
    path = shared / DB / "level2/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db"
    result = profiler_db.read(path, origin)
    assert result.table.num_rows == 191
    assert result.facts["schema_version"] == "1.0.0"
    row = next(row for row in result.table.to_pylist() if row["name"] == "Conv2D1")
    assert (row["start_ns"], row["duration_ns"], row["launch_latency_ns"]) == (
        1736414119651291253,
        314786,
        175513,
    )
    assert row["input_shapes"] == [[32, 1, 224, 224, 8], [121, 4, 16, 8], [64]]
    assert dict(row["metrics"])["aicore_time(us)"] == pytest.approx(310.6607638888889)
    assert "aiv_vec_ratio" not in dict(row["metrics"])
    collectives = [row for row in result.table.to_pylist() if row["task_type"] == "COMMUNICATION"]
    assert [row["op_type"] for row in collectives] == ["hcom_allReduce_"] * 4


def test_a_database_that_a_viewer_altered_is_still_read(shared: Path, origin: Origin) -> None:
    level1 = profiler_db.read(
        shared / DB / "level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db", origin
    )
    assert (level1.table.num_rows, level1.facts["viewer_modified"]) == (191, True)
    assert level1.table["wait_ns"].to_pylist()[1] == 100602
    other = profiler_db.read(shared / "samples/profiler/msinsight-server-ut/full_db/msprof_0.db", origin)
    assert (other.table.num_rows, other.quarantine.num_rows) == (11, 0)


def test_reading_leaves_no_file_beside_the_database(shared: Path, tmp_path: Path, origin: Origin) -> None:
    path = shared / DB / "level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db"
    copy = tmp_path / path.name
    shutil.copyfile(path, copy)
    with sqlite3.connect(copy) as db:
        db.execute("PRAGMA journal_mode=WAL")
    db.close()
    before = (copy.read_bytes(), sorted(p.name for p in tmp_path.iterdir()))
    copy.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert profiler_db.read(copy, origin).table.num_rows == 191
    finally:
        tmp_path.chmod(0o755)
    assert (copy.read_bytes(), sorted(p.name for p in tmp_path.iterdir())) == before


def test_rows_without_times_are_refused_by_row_id_and_the_rest_kept(
    shared: Path, tmp_path: Path, origin: Origin, make_database: MakeDatabase
) -> None:
    csv = kernel_details.read(shared / CANN83 / "kernel_details.csv", origin).table.slice(0, 20)
    path = tmp_path / "p.db"
    make_database(path, csv.to_pylist())
    with sqlite3.connect(path) as db:
        db.execute("UPDATE TASK SET startNs = 'soon' WHERE rowid = 2")
        db.execute("UPDATE TASK SET endNs = startNs - 1 WHERE rowid = 3")
        db.execute("DELETE FROM TASK WHERE rowid = 4")
        db.execute("UPDATE COMPUTE_TASK_INFO SET name = 99999 WHERE rowid = 5")
    result = profiler_db.read(path, origin)
    assert result.quarantine.num_rows == 4
    assert result.table.num_rows == 16
    assert set(result.quarantine["source_line"].to_pylist()) >= {2, 3, None}


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\x00" + b"\x00" * 200])
def test_what_is_no_database_is_refused_with_a_reason(tmp_path: Path, origin: Origin, content: bytes) -> None:
    path = tmp_path / "ascend_pytorch_profiler.db"
    path.write_bytes(content)
    for reader in (profiler_db.read, analysis_db.read):
        result = reader(path, origin)
        assert result.table.num_rows == 0
        assert result.quarantine.num_rows == 1


def test_a_database_cut_off_is_refused_not_raised(shared: Path, tmp_path: Path, origin: Origin) -> None:
    path = shared / DB / "level2/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_0.db"
    data = path.read_bytes()
    for size in (4096, len(data) // 3, len(data) - 4096):
        (tmp_path / "cut.db").write_bytes(data[:size])
        result = profiler_db.read(tmp_path / "cut.db", origin)
        assert result.table.num_rows == 191 or result.quarantine.num_rows >= 1


@pytest.mark.parametrize("name", ["ascend_pytorch_profiler_0.db", "analysis.db"])
def test_a_database_with_bytes_overwritten_is_read_or_refused_not_raised(
    shared: Path, tmp_path: Path, origin: Origin, name: str
) -> None:
    whole = (shared / DB / "level2/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT" / name).read_bytes()
    reader = analysis_db.read if name == "analysis.db" else profiler_db.read
    chance = random.Random(7)
    for _ in range(100):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 5, 50, 500])):
            data[chance.randrange(len(data))] = chance.randrange(256)
        (tmp_path / name).write_bytes(data)
        result = reader(tmp_path / name, origin)
        result.table.validate(full=True)
        assert result.table.num_rows or result.quarantine.num_rows


def test_the_step_trace_of_a_database_is_the_one_of_the_csv(shared: Path, origin: Origin) -> None:
    (row,) = analysis_db.read(shared / CANN83 / "analysis.db", origin).table.to_pylist()
    assert (row["step_id"], row["computing_ns"], row["communication_ns"]) == (13, 231290100, 420174260)
