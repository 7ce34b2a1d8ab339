"""A whole profiler folder: kernels once, launches linked, bad files named, nothing stops the rest."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tilewatch.data_contracts import schema
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import kernel_details
from tilewatch.tasks.read.profiler.profiler_folder import CHECKS, read_profiler

TEXT = "samples/profiler/msinsight-pytorch-text"
CANN83 = "samples/profiler/msinsight-st-level2-cann83rc1/rank_0_ascend_pt"


@pytest.fixture
def run(shared: Path, tmp_path: Path) -> Path:
    """A copy of a real level 1 run, free to be damaged."""
    folder = tmp_path / "host_1_20260522113006123_ascend_pt"
    shutil.copytree(shared / TEXT / "level1/rank0_ascend_pt", folder, copy_function=shutil.copyfile)
    return folder


def output(name: str) -> str:
    return f"ASCEND_PROFILER_OUTPUT/{name}"


def test_kernels_of_a_run_appear_once_with_their_launches(run: Path, origin: Origin) -> None:
    results = read_profiler(run, origin)
    kernels = results[output("kernel_details.csv")]
    assert kernels.table.num_rows == 191
    assert (kernels.facts["linked"], kernels.facts["negative_latencies"]) == (191, 34)
    timeline = results[output("trace_view.json")]
    assert timeline.table.num_rows == 0
    assert timeline.facts["same_kernels_as"] == [output("kernel_details.csv")]
    assert set(kernels.table["source_file"].to_pylist()) == {output("kernel_details.csv")}


def test_a_complete_run_passes_its_self_checks(run: Path, origin: Origin) -> None:
    checks = read_profiler(run, origin)[CHECKS].table
    assert checks.num_rows == 3
    assert checks["success"].to_pylist() == [True, True, True]


def test_a_missing_row_fails_the_check_that_counts_it(run: Path, origin: Origin) -> None:
    path = run / output("kernel_details.csv")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5] + lines[6:]))
    checks = {row["table"]: row for row in read_profiler(run, origin)[CHECKS].table.to_pylist()}
    assert not checks[output("op_statistic.csv")]["success"]
    assert "op_statistic counts" in checks[output("op_statistic.csv")]["detail"]
    assert not checks[output("step_trace_time.csv")]["success"]


def test_without_a_csv_the_timeline_gives_the_kernels(run: Path, origin: Origin) -> None:
    (run / output("kernel_details.csv")).unlink()
    results = read_profiler(run, origin)
    assert results[output("trace_view.json")].table.num_rows == 191


def test_a_database_beside_the_csv_is_compared_and_not_counted_twice(
    shared: Path, tmp_path: Path, origin: Origin, make_database: Callable[..., None]
) -> None:
    folder = tmp_path / "rank_0_ascend_pt"
    shutil.copytree(shared / CANN83, folder, copy_function=shutil.copyfile)
    rows = kernel_details.read(folder / output("kernel_details.csv"), origin).table.to_pylist()
    make_database(folder / output("ascend_pytorch_profiler_0.db"), rows)
    results = read_profiler(folder, origin)
    assert results[output("ascend_pytorch_profiler_0.db")].table.num_rows == 0
    rules = {row["rule"]: row for row in results[CHECKS].table.to_pylist()}
    assert rules["database equals CSV to the nanosecond"]["success"]
    assert rules["step database equals CSV to the nanosecond"]["success"]
    (folder / output("kernel_details.csv")).unlink()
    assert read_profiler(folder, origin)[output("ascend_pytorch_profiler_0.db")].table.num_rows == 2463


def test_slices_of_one_export_are_one_run(shared: Path, tmp_path: Path, origin: Origin) -> None:
    real = shared / CANN83 / "ASCEND_PROFILER_OUTPUT"
    folder = tmp_path / "PROF_000001_20260522113005123_ABCDEF" / "mindstudio_profiler_output"
    folder.mkdir(parents=True)
    shutil.copyfile(real / "op_statistic.csv", folder / "op_statistic_20260522113006.csv")
    with (real / "kernel_details.csv").open(newline="", encoding="utf-8") as stream:
        header, *rows = csv.reader(stream)
    renamed = {"Name": "Op Name", "Type": "OP Type", "Accelerator Core": "Task Type"}
    renamed |= {f"{kind}(us)": f"Task {kind}(us)" for kind in ("Start Time", "Duration", "Wait Time")}
    for number, part in enumerate((rows[:1000], rows[1000:2000], rows[2000:])):
        path = folder / f"op_summary_slice_{number}_20260522113006.csv"
        with path.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream, lineterminator="\n").writerows(
                [[renamed.get(name, name) for name in header], *part]
            )
    results = read_profiler(folder.parent, origin)
    slices = [result.table for name, result in results.items() if "slice" in name]
    assert [table.num_rows for table in slices] == [1000, 1000, 463]
    whole = kernel_details.read(real / "kernel_details.csv", origin).table
    assert pa.concat_tables(slices)["start_ns"].to_pylist() == whole["start_ns"].to_pylist()
    checks = results[CHECKS].table.to_pylist()
    assert [(check["rule"], check["success"]) for check in checks] == [
        ("no kernel stands twice", True),
        ("op_statistic equals the aggregate of the kernel rows", True),
    ]


def test_kernels_read_batch_by_batch_into_a_spool_are_the_same_tables(
    run: Path, tmp_path: Path, origin: Origin
) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    whole, spooled = read_profiler(run, origin), read_profiler(run, origin, spool=spool)
    assert whole.keys() == spooled.keys()
    assert all(whole[name].table.equals(spooled[name].table) for name in whole)
    assert all(whole[name].facts == spooled[name].facts for name in whole)
    (mapped,) = spool.iterdir()
    mapped.unlink()
    assert spooled[output("kernel_details.csv")].table["start_ns"].null_count == 0


def test_a_bad_file_of_any_kind_does_not_stop_the_rest(run: Path, origin: Origin) -> None:
    timeline = run / output("trace_view.json")
    timeline.write_text(json.dumps(json.loads(timeline.read_bytes())[:300]))
    good = read_profiler(run, origin)
    for path in sorted(run.rglob("*")):
        if not path.is_file():
            continue
        whole = path.read_bytes()
        for content in (b"", b"\x00\xff" * 300, whole[: len(whole) // 2]):
            path.write_bytes(content)
            results = read_profiler(run, origin)
            assert set(results) == set(good)
            for name, result in results.items():
                assert result.table.num_columns == 0 or result.table.validate(full=True) is None
                if "profiler" not in name and name not in (CHECKS, path.relative_to(run).as_posix()):
                    assert result.quarantine.num_rows == 0
        path.write_bytes(whole)


def test_a_file_that_cannot_be_opened_is_named_in_quarantine(run: Path, origin: Origin) -> None:
    path = run / output("op_statistic.csv")
    path.unlink()
    os.mkfifo(path)
    (run / output("api_statistic.csv")).unlink()
    (run / output("api_statistic.csv")).symlink_to("/etc/hostname")
    results = read_profiler(run, origin)
    assert output("op_statistic.csv") not in results
    assert output("api_statistic.csv") not in results
    assert results[output("kernel_details.csv")].table.num_rows == 191


def test_tables_of_one_contract_concatenate_over_a_folder_of_runs(shared: Path, origin: Origin) -> None:
    results = read_profiler(shared / TEXT, origin)
    kernels = [r.table for r in results.values() if r.table.schema.equals(schema("kernels"))]
    keys = {
        (file, index)
        for table in kernels
        for file, index in zip(
            table["source_file"].to_pylist(), table["kernel_index"].to_pylist(), strict=True
        )
    }
    assert len(keys) == sum(table.num_rows for table in kernels) == 6 * 191


def test_files_that_no_table_needs_say_why(run: Path, origin: Origin) -> None:
    results = read_profiler(run, origin)
    assert results[output("memory_record.csv")].facts["not_read"] == "memory use; no table holds it"
    assert results[output("communication_matrix.json")].facts["not_read"].startswith("links between ranks")


def test_a_file_is_no_folder(run: Path, origin: Origin) -> None:
    with pytest.raises(NotADirectoryError, match=r"trace_view\.json is no folder"):
        read_profiler(run / output("trace_view.json"), origin)
