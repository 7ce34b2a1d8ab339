"""Lines that cannot be trusted are refused by name; what is around them is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.plog.reader import LogFile, read_plog
from tilewatch.tasks.read.result import ReadResult

LINE = (
    b"[DEBUG] OP(5,p):2026-11-29-14:55:33.230.000 [op.h:25][NNOP][F][7] OpName:[aclnnX_1_XAiCore] "
    b"Tiling Key: 5, len: 16, numBlocks: 8, Workspace Num: 1."
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plog-5_20261129145533000.log"


def read(path: Path, content: bytes, origin: Origin, *, census: bool = False) -> ReadResult:
    path.write_bytes(content)
    return read_plog([LogFile(path, path.name)], origin, census=census)


def test_a_file_that_ends_inside_a_line_does_not_give_a_shorter_number(path: Path, origin: Origin) -> None:
    result = read(path, LINE[: LINE.index(b"numBlocks: 8") + 12], origin)
    assert result.table.num_rows == 0
    assert result.quarantine["rule"].to_pylist() == ["unterminated_line"]


def test_a_tiling_line_before_any_header_is_refused_not_lost(path: Path, origin: Origin) -> None:
    result = read(path, LINE[LINE.index(b"Tiling Key") :] + b"\n" + LINE + b"\n", origin)
    assert result.quarantine["rule"].to_pylist() == ["no_header"]
    assert result.table["source_line"].to_pylist() == [2]


def test_a_line_without_an_end_is_dropped_and_told(path: Path, origin: Origin) -> None:
    result = read(path, LINE + b"\n" + bytes(4 << 20) + b"\n" + LINE + b"\n", origin)
    assert result.table["source_line"].to_pylist() == [1, 3]
    assert result.quarantine["rule"].to_pylist() == ["overlong_line"]


def test_a_census_refuses_a_line_that_only_looks_like_a_log_line(path: Path, origin: Origin) -> None:
    content = LINE + b"\n[INFO] GE(5,p):yesterday [a.cc:1]5 F:x\n"
    (refused,) = read(path, content, origin, census=True).quarantine.to_pylist()
    assert (refused["rule"], refused["source_line"]) == ("unclassified_header", 2)
    assert read(path, content, origin).quarantine.num_rows == 0


def test_a_file_that_cannot_be_opened_does_not_stop_the_others(path: Path, origin: Origin) -> None:
    path.write_bytes(LINE + b"\n")
    gone = LogFile(path.with_name("plog-5_20261129145533999.log"), "gone.log")
    result = read_plog([gone, LogFile(path, path.name)], origin)
    assert result.table.num_rows == 1
    assert result.quarantine["rule"].to_pylist() == ["unreadable_file"]
