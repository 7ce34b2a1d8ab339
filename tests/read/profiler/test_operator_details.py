"""operator_details.csv: records that span lines, each with the line it starts on."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import operator_details
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular import csv_records

HEADER = (
    "Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us),Device Self Duration(us),"
    "Device Total Duration(us),Device Self Duration With AICore(us),Device Total Duration With AICore(us)"
)


def record(number: int) -> str:
    return (
        f'op_{number},"8,4;\n;\n4,8","a.py({number}): f;\nb.py(2): g, ""h""",{number}.5,20.25,0,498.4,0,498.4'
    )


def read(path: Path, data: bytes, origin: Origin) -> ReadResult:
    path.write_bytes(data)
    result = operator_details.read(path, origin)
    result.table.validate(full=True)
    return result


def test_real_records_start_on_the_lines_that_a_plain_csv_reader_finds(shared: Path, origin: Origin) -> None:
    folder = shared / "samples/profiler/msinsight-pytorch-text/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"
    result = operator_details.read(folder / "operator_details.csv", origin)
    with (folder / "operator_details.csv").open(newline="") as stream:
        reader = csv.reader(stream)
        next(reader)
        starts, before = [], reader.line_num
        for _ in reader:
            starts.append(before + 1)
            before = reader.line_num
    assert result.table.num_rows == 859
    assert result.table["source_line"].to_pylist() == starts


def test_a_record_is_one_call_of_level_torch(tmp_path: Path, origin: Origin) -> None:
    (row,) = read(tmp_path / "o.csv", f"{HEADER}\n{record(7)}\n".encode(), origin).table.to_pylist()
    assert (row["level"], row["name"], row["count"]) == ("torch", "op_7", 1)
    assert (row["self_ns"], row["total_ns"], row["device_total_ns"]) == (7500, 20250, 498400)
    assert row["call_stack"] == 'a.py(7): f;\nb.py(2): g, "h"'


@pytest.mark.parametrize("block_bytes", [1, 50, 300, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_blocks_of_any_size_give_the_same_records(
    tmp_path: Path, origin: Origin, block_bytes: int, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_records, "BLOCK_BYTES", block_bytes)
    text = "\n".join([HEADER, *(record(n) for n in range(20))]) + "\n"
    result = read(tmp_path / "o.csv", text.replace("\n", end).encode(), origin)
    assert result.table["name"].to_pylist() == [f"op_{n}" for n in range(20)]
    assert result.table["source_line"].to_pylist() == [2 + 4 * n for n in range(20)]
    assert result.quarantine.num_rows == 0


@pytest.mark.parametrize("block_bytes", [60, 1 << 20])
@pytest.mark.parametrize("rubbish", ['"open, quote', "plain, rubbish", 'op_x,"cut off in the stack;'])
def test_a_quote_that_never_closes_costs_only_its_own_line(
    tmp_path: Path, origin: Origin, block_bytes: int, rubbish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_records, "BLOCK_BYTES", block_bytes)
    parts = [HEADER, *(record(n) for n in range(5)), rubbish, *(record(n) for n in range(5, 9))]
    result = read(tmp_path / "o.csv", ("\n".join(parts) + "\n").encode(), origin)
    assert result.table["name"].to_pylist() == [f"op_{n}" for n in range(9)]
    (refused,) = result.quarantine.to_pylist()
    assert (refused["source_line"], refused["raw_text"]) == (22, rubbish)


@settings(max_examples=60, deadline=None)
@given(cut=st.floats(0, 1))
def test_a_file_cut_anywhere_keeps_its_whole_records(
    tmp_path_factory: pytest.TempPathFactory, origin: Origin, cut: float
) -> None:
    whole = [HEADER, *(record(n) for n in range(6))]
    text = "\n".join(whole) + "\n"
    data = text[: int(cut * len(text))]
    result = read(tmp_path_factory.mktemp("cut") / "o.csv", data.encode(), origin)
    complete = sum(data.startswith("\n".join(whole[: n + 2]) + "\n") for n in range(6))
    assert result.table["name"].to_pylist()[:complete] == [f"op_{n}" for n in range(complete)]
    assert result.table.num_rows <= complete + 1


def test_bytes_of_another_encoding_are_shown_not_lost(tmp_path: Path, origin: Origin) -> None:
    data = f"{HEADER}\n{record(1)}\n".encode().replace(b"b.py", b"\xc4\xff.py")
    (row,) = read(tmp_path / "o.csv", data, origin).table.to_pylist()
    assert "\ufffd" in row["call_stack"]


def test_a_line_that_is_only_a_byte_order_mark_is_refused(tmp_path: Path, origin: Origin) -> None:
    data = f"{HEADER}\n{record(1)}\n".encode() + b"\xef\xbb\xbf"
    result = read(tmp_path / "operator_details.csv", data, origin)
    (refused,) = result.quarantine.to_pylist()
    assert result.table.num_rows == 1
    assert (refused["raw_text"], refused["reason"]) == ("\ufffd", "1 cells where the header has 9")


def test_stray_quotes_in_one_line_do_not_cost_the_records_before_it(tmp_path: Path, origin: Origin) -> None:
    text = f'{HEADER}\n{record(1)}\n";\ny",1.5,2\nb,,1\n"ts": 1.5Call Stack,D"a,",1.5,2\nb,,1\n'
    result = read(tmp_path / "operator_details.csv", text.encode(), origin)
    assert result.table["source_line"].to_pylist() == [2]
    assert result.quarantine.num_rows > 0


def test_a_refused_record_is_kept_with_all_its_lines(tmp_path: Path, origin: Origin) -> None:
    bad = record(1).replace("20.25", "soon")
    result = read(tmp_path / "o.csv", f"{HEADER}\n{record(0)}\n{bad}\n{record(2)}\n".encode(), origin)
    (refused,) = result.quarantine.to_pylist()
    assert (refused["source_line"], refused["value"], refused["raw_text"]) == (6, "soon", bad)
    assert result.table["source_line"].to_pylist() == [2, 10]
