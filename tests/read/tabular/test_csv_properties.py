"""Whatever order, line ends, cuts and rubbish: good rows unchanged, bad ones in quarantine, no exception."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import kernel_details
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular import lines

COLUMNS = {
    "Step Id": "13",
    "Device_id": "0",
    "Stream ID": "2",
    "Name": "kernel_{n}",
    "Type": "MatMulV3",
    "Accelerator Core": "AI_CORE",
    "Start Time(us)": "17642468770{n:05d}.{n:03d}\t",
    "Duration(us)": "{n}.5",
    "Wait Time(us)": "0",
    "Block Dim": "20",
    "Mix Block Dim": "0",
    "HF32 Eligible": "NO",
    "Input Shapes": '"""{n},4096;4096,1024"""',
    "Context ID": "N/A",
    "aic_total_cycles": "1000",
    "aic_mac_ratio": "0.{n}",
}
REQUIRED = ("Name", "Duration(us)")
COUNT = 12
VARIABLE = ("kernel_index", "source_line", "source_file")

orders = st.permutations(range(COUNT))
column_orders = st.permutations(list(COLUMNS))
line_ends = st.sampled_from(["\n", "\r\n"])
rubbish = st.binary(max_size=60).filter(lambda data: b"\n" not in data and data.strip(b"\r") != b"")


def csv_line(number: int, columns: list[str]) -> str:
    return ",".join(COLUMNS[name].format(n=number) for name in columns)


def read(data: bytes, origin: Origin) -> ReadResult:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel_details.csv"
        path.write_bytes(data)
        result = kernel_details.read(path, origin)
    result.table.validate(full=True)
    result.quarantine.validate(full=True)
    return result


def by_name(result: ReadResult) -> dict[str, dict[str, Any]]:
    return {
        row["name"]: {key: value for key, value in row.items() if key not in VARIABLE}
        | {"metrics": dict(row["metrics"] or [])}
        for row in result.table.to_pylist()
    }


def plain(origin: Origin) -> dict[str, dict[str, Any]]:
    columns = list(COLUMNS)
    text = "\n".join([",".join(columns)] + [csv_line(n, columns) for n in range(COUNT)]) + "\n"
    return by_name(read(text.encode(), origin))


@pytest.fixture(scope="module")
def expected(origin: Origin) -> dict[str, dict[str, Any]]:
    rows = plain(origin)
    assert len(rows) == COUNT
    return rows


@settings(max_examples=60, deadline=None)
@given(rows=orders, columns=column_orders, end=line_ends, mark=st.booleans(), last=st.booleans())
def test_order_of_rows_and_columns_line_ends_and_mark_change_nothing(
    origin: Origin,
    expected: dict[str, Any],
    rows: list[int],
    columns: list[str],
    end: str,
    mark: bool,
    last: bool,
) -> None:
    text = end.join([",".join(columns)] + [csv_line(n, columns) for n in rows]) + (end if last else "")
    result = read((b"\xef\xbb\xbf" if mark else b"") + text.encode(), origin)
    assert by_name(result) == expected
    assert result.quarantine.num_rows == 0
    assert result.table["source_line"].to_pylist() == list(range(2, COUNT + 2))


@settings(max_examples=40, deadline=None)
@given(missing=st.sets(st.sampled_from([name for name in COLUMNS if name not in REQUIRED])))
def test_a_missing_optional_column_leaves_the_others_as_they_are(
    origin: Origin, expected: dict[str, Any], missing: set[str]
) -> None:
    columns = [name for name in COLUMNS if name not in missing]
    text = "\n".join([",".join(columns)] + [csv_line(n, columns) for n in range(COUNT)])
    result = read(text.encode(), origin)
    assert result.quarantine.num_rows == 0
    assert {name: row["duration_ns"] for name, row in by_name(result).items()} == {
        name: row["duration_ns"] for name, row in expected.items()
    }


@settings(max_examples=75, deadline=None)
@given(data=rubbish, at=st.integers(0, COUNT), end=line_ends)
def test_a_line_of_rubbish_is_refused_alone(
    origin: Origin, expected: dict[str, Any], data: bytes, at: int, end: str
) -> None:
    columns = list(COLUMNS)
    good = [csv_line(n, columns).encode() for n in range(COUNT)]
    content = [",".join(columns).encode(), *good[:at], data, *good[at:]]
    result = read(end.encode().join(content) + end.encode(), origin)
    assert by_name(result) == expected
    assert result.quarantine["source_line"].to_pylist() == [at + 2]


@settings(max_examples=75, deadline=None)
@given(cut=st.floats(0, 1), end=line_ends)
def test_a_file_cut_anywhere_keeps_its_whole_rows(
    origin: Origin, expected: dict[str, Any], cut: float, end: str
) -> None:
    columns = list(COLUMNS)
    text = end.join([",".join(columns)] + [csv_line(n, columns) for n in range(COUNT)]) + end
    data = text.encode()[: int(cut * len(text))]
    result = read(data, origin)
    whole = max(data.count(b"\n") - 1, 0)
    rows = by_name(result)
    assert list(rows)[:whole] == list(expected)[:whole]
    assert all(rows[name] == expected[name] for name in list(expected)[:whole])
    started = len(data.split(b"\n")[-1].strip(b"\r")) > 0
    assert result.table.num_rows + result.quarantine.num_rows == (
        whole + started if data.count(b"\n") else result.quarantine.num_rows + 0
    )


@settings(max_examples=60, deadline=None)
@given(
    broken=st.lists(
        st.tuples(st.integers(0, COUNT - 1), st.sampled_from(list(COLUMNS))), min_size=1, max_size=5
    )
)
def test_a_missing_cell_never_shifts_a_value_into_another_column(
    origin: Origin, expected: dict[str, Any], broken: list[tuple[int, str]]
) -> None:
    columns = list(COLUMNS)
    rows = [csv_line(n, columns) for n in range(COUNT)]
    for number, name in broken:
        rows[number] = csv_line(number, [column for column in columns if column != name])
    result = read("\n".join([",".join(columns), *rows]).encode(), origin)
    hit = {number for number, _ in broken}
    assert by_name(result) == {f"kernel_{n}": expected[f"kernel_{n}"] for n in range(COUNT) if n not in hit}
    assert result.quarantine["source_line"].to_pylist() == sorted(number + 2 for number in hit)


@pytest.mark.parametrize("block_bytes", [64, 1000, 4096])
def test_blocks_of_any_size_give_the_same_rows_and_line_numbers(
    origin: Origin, expected: dict[str, Any], block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines.blocks, "__defaults__", (block_bytes,))
    columns = list(COLUMNS)
    rows = [csv_line(n, columns) for n in range(COUNT)]
    text = "\n".join([",".join(columns), *rows[:6], 'odd "line', "", *rows[6:]]) + "\n"
    result = read(text.encode(), origin)
    assert by_name(result) == expected
    assert result.table["kernel_index"].to_pylist() == list(range(COUNT))
    assert result.table["source_line"].to_pylist() == [2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15]
    assert result.quarantine["source_line"].to_pylist() == [8]
    assert result.facts["blank_lines"] == 1


def test_a_file_without_line_ends_is_cut_and_refused(
    origin: Origin, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 2000)
    monkeypatch.setattr(lines.blocks, "__defaults__", (100,))
    columns = list(COLUMNS)
    rows = [csv_line(n, columns) for n in range(COUNT)]
    text = "\n".join([",".join(columns), *rows[:6], "x" * 9000, *rows[6:]]) + "\n"
    result = read(text.encode(), origin)
    assert by_name(result) == expected
    assert set(result.quarantine["source_line"].to_pylist()) == {8}
    assert result.table["source_line"].to_pylist()[-1] == 14
