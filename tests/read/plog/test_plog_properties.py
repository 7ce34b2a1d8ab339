"""Whatever is done to a log: no exception escapes, good records are unchanged, the rest is accounted for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.plog.reader import LogFile, PlogReader, read_plog

ORIGIN = Origin("0" * 32, "run", "build", "id", "ingested", "ingested", "measured")
PREFIX = "[DEBUG] OP(5,python3):2026-11-29-14:55:33.230"
SETTINGS = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
MARKED = [
    b"Tiling Key: 1", b"Start to dump tiling info. tilingkey:", b"[DumpTilingInfo]", b"kernel info : ",
    b"fault kernel_name=", b"tilingKey = ", b"[AIC_INFO] args(0 to 5) after execute:0x, 0x1", b"GMM_tiling",
    b"Launch kernel engine type: 1, numBlocks: 99999999999999999999999999, ", b"para base: 0x",
]  # fmt: skip


def launches(count: int) -> list[bytes]:
    lines = []
    for i in range(count):
        words = "".join(f"{w}," for w in (32, 4 + i, 1280, 8192, 16, 256, 256, 16, 256, 64, *[1] * 12))
        name = f"OpName:[aclnnMatmul_{i}_MatMulV3AiCore]"
        for n, text in enumerate(
            (
                "[OPS_NN][DumpTilingInfo][7] OpName:[MatMulV3:MatMulV3] Start to dump tiling info. "
                f"tilingkey:4162, tiling data size:88, content:{words}",
                f"[NNOP][DoTiling][7] {name} Tiling Key: 4162, len: 88, numBlocks: 32, Workspace Num: 1.",
                f"[NNOP][Launch][7] {name} Launch kernel engine type: 1, numBlocks: 32, scheduleMode: 0, "
                "blockDimOffset: 0, dynUBufSize: 0, funcHandle: 0xfffe10, print arg result: 0",
            )
        ):
            lines.append(f"{PREFIX}.{3 * i + n:03d} [a.h:1]{text}".encode())
    return lines


def read(path: Path, content: bytes, **options: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    path.write_bytes(content)
    result = read_plog([LogFile(path, path.name)], ORIGIN, census=True, **options)
    return result.table.to_pylist(), result.quarantine.to_pylist()


def essence(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("op_sequence", "tiling_key", "block_dim", "base_m", "m_cnt", "joined_by", "fields")
    return [tuple(str(row[name]) for name in names) for row in rows]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plog") / "plog-5_20261129145533000.log"


@SETTINGS
@given(at=st.integers(min_value=0))
def test_a_log_cut_at_any_byte_keeps_the_records_before_the_cut(log: Path, at: int) -> None:
    content = b"\n".join(launches(6)) + b"\n"
    cut = at % len(content)
    whole, _ = read(log, content)
    rows, refused = read(log, content[:cut])
    complete = content[:cut].count(b"\n") // 3
    assert essence(rows)[:complete] == essence(whole)[:complete]
    unfinished = content[:cut].rpartition(b"\n")[2]
    assert len(rows) <= complete + 1
    if any(marker in unfinished for marker in (b"Tiling Key: ", b"Launch kernel engine type: ")):
        assert [r["rule"] for r in refused if r["rule"] == "unterminated_line"] == ["unterminated_line"]


@SETTINGS
@given(
    places=st.lists(st.integers(min_value=0, max_value=18), max_size=8),
    garbage=st.lists(st.binary(max_size=200).filter(lambda b: b"\n" not in b), min_size=1, max_size=8),
    marker=st.sampled_from(MARKED),
)
def test_injected_garbage_lines_leave_every_good_record_as_it_was(
    log: Path, places: list[int], garbage: list[bytes], marker: bytes
) -> None:
    lines = launches(6)
    whole, _ = read(log, b"\n".join(lines) + b"\n")
    for place, text in zip(sorted(places, reverse=True), garbage * 8, strict=False):
        lines.insert(place, b"garbage " + marker + text)
    rows, _ = read(log, b"\n".join(lines) + b"\n")
    assert essence(rows) == essence(whole)


@SETTINGS
@given(ending=st.sampled_from([b"\n", b"\r\n"]), block=st.integers(min_value=1, max_value=3000))
def test_line_endings_and_block_sizes_do_not_matter(log: Path, ending: bytes, block: int) -> None:
    whole, _ = read(log, b"\n".join(launches(6)) + b"\n")
    log.write_bytes(ending.join(launches(6)) + ending)
    reader = PlogReader(ORIGIN, block_bytes=block)
    rows = [row for table in reader.batches([LogFile(log, log.name)]) for row in table.to_pylist()]
    assert essence(rows) == essence(whole)
    assert [row["source_line"] for row in rows] == [row["source_line"] for row in whole]
    assert reader.facts.files[0]["lines"] == 18


def _mutated(shared: Path) -> st.SearchStrategy[bytes]:
    folder = shared / "samples" / "plog"
    texts = [p.read_bytes() for p in sorted([*folder.glob("*.log"), *folder.glob("generated/*.log")])]
    odd = [b"9" * 19, b"9" * 30, b"7" * 5000, "²٣".encode(), b"-", b",", b"0x", b"0xg", b"\0", b"]", b"\xff"]
    insert = st.one_of(st.binary(max_size=8), st.sampled_from(odd))
    cut = st.tuples(st.sampled_from(texts), st.integers(0), st.integers(0, 60), insert)

    def apply(parts: list[tuple[bytes, int, int, bytes]]) -> bytes:
        out = b""
        for text, at, length, insert in parts:
            place = at % len(text)
            out += text[:place] + insert + text[place + length :]
        return out

    return st.lists(cut, min_size=1, max_size=3).map(apply)


def _fuzz(shared: Path, log: Path, examples: int) -> None:
    @settings(parent=SETTINGS, max_examples=examples)
    @given(content=_mutated(shared))
    def run(content: bytes) -> None:
        rows, refused = read(log, content)
        for row in rows:
            assert row["tiling_key"] is None or row["tiling_key"].isdigit()
            assert row["block_dim"] is None or row["block_dim"] >= 0
        assert len({row["source_line"] for row in rows}) == len(rows)
        assert len({row["quarantine_id"] for row in refused}) == len(refused)

    run()


def test_damaged_real_logs_raise_nothing(shared: Path, log: Path) -> None:
    _fuzz(shared, log, 150)


@pytest.mark.soak
def test_damaged_real_logs_raise_nothing_at_length(shared: Path, log: Path) -> None:
    _fuzz(shared, log, 20_000)
