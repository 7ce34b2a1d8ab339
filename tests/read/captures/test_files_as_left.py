"""Profiler files after a spreadsheet, a script, a chat: the same values, or a refusal that names the loss."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import pyarrow as pa
import pytest

from tilewatch.tasks.read.captures.ingested_capture import refusals_by_reason
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.profiler_folder import CHECKS, read_profiler
from tilewatch.tasks.read.result import ReadResult

CASES = ("resaved_by_pandas", "semicolons", "gbk", "gzipped")
HEADER = "Device_id,Task ID,Stream ID,Name,Accelerator Core,Start Time(us),Duration(us)"
ROW = "0,5,2,MatMul,AI_CORE,1777097775243356.821\t,2.125"
CHANGED = "source_file"


def read(folder: Path, origin: Origin) -> tuple[dict[str, ReadResult], list[dict[str, Any]]]:
    """Results by file, and the self-checks."""
    results = read_profiler(folder, origin)
    return results, results.pop(CHECKS).table.to_pylist()


def one(folder: Path, origin: Origin) -> ReadResult:
    results, _ = read(folder, origin)
    (result,) = (r for r in results.values() if "not_read" not in r.facts)
    return result


def saved(tmp_path: Path, lines: list[str], name: str = "kernel_details.csv") -> Path:
    (tmp_path / name).write_bytes("\n".join([*lines, ""]).encode())
    return tmp_path


@pytest.mark.parametrize("case", CASES)
def test_six_kernels_however_the_file_was_saved(shared: Path, origin: Origin, case: str) -> None:
    result = one(shared / "cases" / case, origin)
    assert (result.table.num_rows, sum(result.table["duration_ns"].to_pylist())) == (6, 10_238_080)
    assert result.quarantine.num_rows == 0
    assert result.table["task_id"].to_pylist()[:2] == [37371, 37372]
    first = "算子_Cast" if case == "gbk" else "aclnnEqScalar_EqualAiCore_Equal"
    assert result.table["name"][0].as_py() == first
    assert result.table["start_ns"][0].as_py() == 1_777_097_775_243_356_800
    said = {
        "semicolons": ["cells are separated by semicolons"],
        "gbk": ["the text is in GB18030"],
        "gzipped": ["packed with gzip"],
    }
    assert result.facts.get("found", []) == said.get(case, [])
    assert result.facts["coarse_times"] == 6


def test_rows_that_stand_twice_are_kept_and_fail_a_self_check(shared: Path, origin: Origin) -> None:
    results, checks = read(shared / "cases" / "same_rows_twice", origin)
    assert results["kernel_details.csv"].table.num_rows == 12
    (check,) = [c for c in checks if c["rule"] == "no kernel stands twice"]
    assert (check["success"], check["failed_count"]) == (False, 6)
    assert "stream 47, task 37371" in check["detail"] and "lines 2 and 8" in check["detail"]


def test_place_holders_are_left_out_with_a_note_not_refused(shared: Path, origin: Origin) -> None:
    results, _ = read(shared / "cases" / "placeholder_op_summary", origin)
    (result,) = (r for name, r in results.items() if name.endswith(".csv"))
    assert (result.table.num_rows, result.quarantine.num_rows) == (0, 0)
    assert result.facts["aside"] == {"PLACE_HOLDER_SQE": 4}


def test_a_kernel_without_a_name_is_refused_and_the_field_is_named(tmp_path: Path, origin: Origin) -> None:
    result = one(saved(tmp_path, [HEADER, ROW.replace("MatMul", "N/A"), ROW]), origin)
    assert refusals_by_reason(result.quarantine, result.facts) == {"required (Name)": 1}


def test_what_msprof_writes_and_is_not_read_is_named_for_what_it_is(shared: Path, origin: Origin) -> None:
    results, _ = read(shared / "cases" / "sqlite_note", origin)
    notes = {
        Path(name).name: str(r.facts["not_read"]) for name, r in results.items() if "not_read" in r.facts
    }
    assert notes["runtime.db"].startswith("an intermediate database of the profiler")
    assert notes["prof_rule_0_20240418065616.json"].startswith("advice of msprof")


def test_a_file_that_marks_completion_is_named_for_what_it_is(tmp_path: Path, origin: Origin) -> None:
    (tmp_path / "analyse.done").write_bytes(b"")
    result = read(tmp_path, origin)[0]["analyse.done"]
    assert result.facts["not_read"] == "marks that something is complete; it holds no data"


@pytest.mark.parametrize(
    ("column", "cell", "rule", "what"),
    [
        ("Start Time(us)", "1.73148E+15", "digits_lost", "saved with 6 digits: start times lost"),
        ("Duration(us)", '"1,234.5"', "number_form", "thousands separators or a decimal comma"),
        ("Duration(us)", '"12,34"', "number_form", "saved with a decimal comma"),
        ("Duration(us)", '"1.234,5"', "number_form", "thousands separators, with a decimal comma"),
        ("Duration(us)", "1e-9", "below_a_nanosecond", "would be stored as 0"),
        ("Duration(us)", "0.0000001", "below_a_nanosecond", "would be stored as 0"),
        ("Task ID", "3.7E+04", "digits_lost", "saved with 2 digits"),
    ],
)
def test_a_column_that_lost_something_is_refused_once_with_what_happened_to_it(
    tmp_path: Path, origin: Origin, column: str, cell: str, rule: str, what: str
) -> None:
    cells = ROW.split(",")
    cells[HEADER.split(",").index(column)] = cell
    result = one(saved(tmp_path, [HEADER, *[",".join(cells)] * 5, ROW.replace("2.125", "2.5")]), origin)
    assert result.table["duration_ns"].to_pylist() == [2500]
    (refused,) = result.quarantine.to_pylist()
    assert (refused["rule"], refused["field"], refused["source_line"]) == (rule, column, 2)
    assert what in refused["reason"] and "5 rows of the file" in refused["reason"]
    assert refusals_by_reason(result.quarantine, result.facts) == {f"{rule} ({column})": 5}


def test_a_point_beside_decimal_commas_is_not_taken_for_a_decimal_point(
    tmp_path: Path, origin: Origin
) -> None:
    rows = [ROW.replace("2.125", text) for text in ('"12,5"', "1.250", "3.5")]
    result = one(saved(tmp_path, [HEADER, *rows]), origin)
    assert result.table["duration_ns"].to_pylist() == [3500]


def test_fifteen_digits_of_a_spreadsheet_are_no_start_times(tmp_path: Path, origin: Origin) -> None:
    rows = [ROW.replace("1777097775243356.821\t", text) for text in ("1777097775243350", "1777097775243990")]
    result = one(saved(tmp_path, [HEADER, *rows]), origin)
    (refused,) = result.quarantine.to_pylist()
    assert result.table.num_rows == 0 and "saved with 15 digits: start times lost" in refused["reason"]


def test_an_integral_float_is_an_integer_and_another_one_is_refused(tmp_path: Path, origin: Origin) -> None:
    rows = [ROW.replace("0,5,2", f"0,{task},2") for task in ("37371.0", "37372.", "37371.5")]
    result = one(saved(tmp_path, [HEADER, *rows]), origin)
    assert result.table["task_id"].to_pylist() == [37371, 37372]
    (refused,) = result.quarantine.to_pylist()
    assert (refused["rule"], refused["value"]) == ("cell_type", "37371.5")


def test_two_exports_in_one_file_are_two_parts_each_under_its_own_header(
    tmp_path: Path, origin: Origin
) -> None:
    other = "Name,Duration(us),Accelerator Core,Start Time(us),Stream ID"
    lines = [
        HEADER,
        ROW,
        HEADER,
        ROW.replace("356.821", "400.821"),
        other,
        "Cast,7.5,AI_CORE,1777097775249.5,3",
    ]
    result = one(saved(tmp_path, lines), origin)
    assert result.table["name"].to_pylist() == ["MatMul", "MatMul", "Cast"]
    assert result.table["duration_ns"].to_pylist() == [2125, 2125, 7500]
    assert result.table["source_line"].to_pylist() == [2, 4, 6]
    assert result.table["task_id"].to_pylist() == [5, 5, None]
    assert [note.split(":")[0] for note in result.facts["found"]] == [
        "a second header in line 3", "a second header in line 5",
    ]  # fmt: skip
    assert result.quarantine.num_rows == 0


def test_one_export_under_two_names_counts_once_and_overlapping_slices_fail_a_check(
    tmp_path: Path, origin: Origin
) -> None:
    header = HEADER.replace("Name", "Op Name").replace("Accelerator Core", "Task Type")
    header = header.replace("Start", "Task Start").replace("Duration", "Task Duration")
    rows = [ROW.replace("0,5,2", f"0,{task},2") for task in range(4)]
    same = tmp_path / "same" / "PROF_1"
    same.mkdir(parents=True)
    for stamp in ("20240418065616", "20240419010101"):
        saved(same, [header, *rows], f"op_summary_{stamp}.csv")
    results, checks = read(same, origin)
    assert [r.table.num_rows for r in results.values()] == [4, 0]
    assert results["op_summary_20240419010101.csv"].facts["same_kernels_as"] == [
        "op_summary_20240418065616.csv"
    ]
    assert all(check["success"] for check in checks)
    sliced = tmp_path / "sliced" / "PROF_1"
    sliced.mkdir(parents=True)
    for number, part in enumerate((rows[:3], rows[2:])):
        saved(sliced, [header, *part], f"op_summary_slice_{number}_20240418065616.csv")
    results, checks = read(sliced, origin)
    (check,) = checks
    assert sum(r.table.num_rows for r in results.values()) == 5
    assert (check["success"], check["failed_count"]) == (False, 1)


def test_text_in_no_known_encoding_is_refused_by_name_and_the_rest_is_kept(
    tmp_path: Path, origin: Origin
) -> None:
    odd = ROW.encode().replace(b"MatMul", b"Mat\xff\xfeMul")
    (tmp_path / "kernel_details.csv").write_bytes(b"\n".join([HEADER.encode(), odd, ROW.encode(), b""]))
    result = one(tmp_path, origin)
    assert result.table["source_line"].to_pylist() == [3]
    (refused,) = result.quarantine.to_pylist()
    assert refused["source_file"] == "kernel_details.csv"
    assert "neither UTF-8, UTF-16 nor GB18030" in refused["reason"]


def test_a_damaged_archive_of_one_file_is_refused_by_name(tmp_path: Path, origin: Origin) -> None:
    packed = gzip.compress("\n".join([HEADER, *[ROW] * 500]).encode())
    (tmp_path / "kernel_details.csv.gz").write_bytes(packed[: len(packed) // 2])
    result = one(tmp_path, origin)
    (refused,) = result.quarantine.to_pylist()
    assert refused["rule"] == "reader_failed" and "gzip and cannot be opened" in refused["reason"]


# Re-saving: every way below keeps all values, or loses what ``COARSE`` says and no more.


def _rows(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))


def _written(rows: list[list[str]], **how: Any) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n", **how).writerows(rows)
    return out.getvalue().encode()


def _zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


def _sheet(rows: list[list[Any]]) -> bytes:
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("export")
    for row in rows:
        sheet.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def _frame(data: bytes) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(data))


def _frame_sheet(data: bytes) -> bytes:
    out = io.BytesIO()
    _frame(data).to_excel(out, index=False, engine="openpyxl")
    return out.getvalue()


EXACT: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "csv": ("", lambda d: _written(_rows(d))),
    "quoted": ("", lambda d: _written(_rows(d), quoting=csv.QUOTE_ALL)),
    "semicolons": ("", lambda d: _written(_rows(d), delimiter=";")),
    "tabs": ("", lambda d: _written(_rows(d), delimiter="\t")),
    "mark": ("", lambda d: b"\xef\xbb\xbf" + d.removeprefix(b"\xef\xbb\xbf")),
    "utf-16": ("", lambda d: d.decode("utf-8-sig").encode("utf-16")),
    "utf-16-be": ("", lambda d: d.decode("utf-8-sig").encode("utf-16-be")),
    "gb18030": ("", lambda d: d.decode("utf-8-sig").encode("gb18030")),
    "gz": (".gz", gzip.compress),
    "xz": (".xz", lzma.compress),
    "zst": (".zst", _zstd),
    "frame of texts": ("", lambda d: pd.read_csv(io.BytesIO(d), dtype=str).to_csv(index=False).encode()),
    "sheet of texts": (".xlsx", lambda d: _sheet(_rows(d))),
}
COARSE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "frame": ("", lambda d: _frame(d).to_csv(index=False).encode()),
    "frame with index": ("", lambda d: _frame(d).to_csv().encode()),
    "frame read twice": ("", lambda d: _frame(_frame(d).to_csv().encode()).to_csv(index=False).encode()),
    "frame to a sheet": (".xlsx", _frame_sheet),
}
KINDS = ("kernel_details", "op_summary", "op_statistic", "api_statistic", "step_trace", "task_time")


def _samples(shared: Path) -> list[Path]:
    found = sorted((shared / "samples" / "profiler").rglob("*.csv"))
    return [path for path in found if path.name.startswith(KINDS) and 0 < path.stat().st_size < 400_000]


def _resaved(path: Path, tmp_path: Path, how: tuple[str, Callable[[bytes], bytes]]) -> Path:
    suffix, save = how
    folder = tmp_path / "resaved"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    name = f"{path.stem}{suffix}" if suffix == ".xlsx" else f"{path.name}{suffix}"
    (folder / name).write_bytes(save(path.read_bytes()))
    return folder


def _original(path: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "original"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copyfile(path, folder / path.name)
    return folder


def _compared(table: pa.Table) -> dict[str, list[Any]]:
    columns = {name: table[name].to_pylist() for name in table.column_names if name != CHANGED}
    # The format of a tensor that is not there: a data frame takes the word for no value.
    return {name: [None if v == ["NULL"] else v for v in values] for name, values in columns.items()}


@pytest.mark.parametrize("how", EXACT)
def test_every_real_sample_saved_anew_gives_the_same_table_value_by_value(
    shared: Path, origin: Origin, tmp_path: Path, how: str
) -> None:
    seen = 0
    for path in _samples(shared):
        before, after = (
            one(_original(path, tmp_path), origin),
            one(_resaved(path, tmp_path, EXACT[how]), origin),
        )
        assert before.table.num_rows == after.table.num_rows, path
        assert _compared(before.table) == _compared(after.table), path
        seen += before.table.num_rows
    assert seen > 2000


@pytest.mark.parametrize("how", COARSE)
def test_what_a_data_frame_loses_of_a_real_sample_is_said_and_is_a_part_of_the_start_times_alone(
    shared: Path, origin: Origin, tmp_path: Path, how: str
) -> None:
    seen = 0
    for path in _samples(shared):
        before, after = (
            one(_original(path, tmp_path), origin),
            one(_resaved(path, tmp_path, COARSE[how]), origin),
        )
        lost = [row["rule"] for row in after.quarantine.to_pylist()]
        if before.quarantine.num_rows:
            continue
        assert before.table.num_rows == after.table.num_rows, (path, lost)
        was, now = _compared(before.table), _compared(after.table)
        for name in was:
            if name in ("start_ns", "end_ns"):
                gaps = [abs(a - b) for a, b in zip(was[name], now[name], strict=True) if a is not None]
                assert max(gaps, default=0) <= 700, path
                assert not any(gaps) or after.facts["coarse_times"] == len(was[name])
            elif name not in ("flags", "source_line"):
                assert was[name] == now[name], (path, name)
        seen += before.table.num_rows
    assert seen > 2000
