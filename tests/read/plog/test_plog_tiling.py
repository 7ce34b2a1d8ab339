"""Launches put together from lines in the wordings of CANN 8.5.0–9.2 and its runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.plog.reader import LogFile, read_plog
from tilewatch.tasks.read.result import ReadResult

Read = Callable[[], ReadResult]
HASH = "00112233445566778899aabbccddeeff"


class Log:
    """Writes lines as the logger frames them, one microsecond apart."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, level: str, module: str, pid: int, tail: str) -> None:
        self.lines.append(
            f"[{level}] {module}({pid},python3):2026-11-29-14:55:33.230.{len(self.lines):03d} {tail}"
        )

    def op(self, text: str, *, name: str, tid: int = 7, level: str = "DEBUG", function: str = "F") -> None:
        self.add(level, "OP", 5, f"[op.h:25][NNOP][{function}][{tid}] OpName:[{name}] {text}")

    def kernel(self, op: str, key: str, *, task: int, blocks: int, tid: int = 7, stream: int = 2) -> None:
        self.add(
            "INFO", "RUNTIME", 5,
            f"[aix.cc:27] {tid} LaunchKernelForStars: kernel info : device_id=0, stream_id={stream}, "
            f"task_id={task}, kernelAttrType=AICORE, kernel_name={op}_{HASH}_{key}, arg_size=200, "
            f"coreDim={blocks}, taskRation=2, funcType=3",
        )  # fmt: skip

    def launch(self, name: str, blocks: int, handle: str, *, tid: int = 7, level: str = "INFO") -> None:
        self.op(
            f"Launch kernel engine type: 1, numBlocks: {blocks}, scheduleMode: 1, blockDimOffset: 0, "
            f"dynUBufSize: 0, funcHandle: {handle}, print arg result: 0",
            name=name, tid=tid, level=level,
        )  # fmt: skip

    def dump(self, op: str, key: int, words: list[int], *, tid: int = 7, chunk: int = 1000) -> None:
        text = f"Start to dump tiling info. tilingkey:{key}, tiling data size:{4 * len(words)}, content:"
        for start in range(0, len(words), chunk):
            text += "".join(f"{word}," for word in words[start : start + chunk])
            self.op(text, name=f"{op}:{op}", tid=tid, function="DumpTilingInfo")
            text = ""


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def read(tmp_path: Path, log: Log, origin: Origin) -> Read:
    def run() -> ReadResult:
        path = tmp_path / "plog-5_20261129145533000.log"
        path.write_text("\n".join(log.lines) + "\n")
        return read_plog([LogFile(path, path.name)], origin)

    return run


def by_sequence(result: ReadResult) -> list[dict[str, Any]]:
    return sorted(result.table.to_pylist(), key=lambda row: (row["op_sequence"] or "", row["source_line"]))


def quant_matmul_words(m: int, used_cores: int = 24) -> list[int]:
    params = [1, 1, 1, *[0] * 12, 1, 0, 1, 0, 0, 32, 96, 0, m, 480, 27, 0, 0, 0, 0, 0, 0]
    cube = [used_cores, m, 1024, 4096, 4096, m, 64, 4096, 32, 64, 512, 8, 4, 1, 1, 0, 0, 1, *[0] * 32]
    return params + cube + [0] * 12


def test_a_dump_in_chunks_is_joined_and_named_by_the_layout_of_its_operator(log: Log, read: Read) -> None:
    name = "aclnnQuantMatmulV4_3_QuantBatchMatmulV3AiCore"
    words = quant_matmul_words(40)
    log.dump("QuantBatchMatmulV3", 24, words, chunk=40)
    log.op("Tiling Key: 24, len: 376, numBlocks: 24, Workspace Num: 1.", name=name)
    log.launch(name, 24, "0xa")
    log.kernel("QuantBatchMatmulV3", "24", task=9, blocks=24)
    (row,) = read().table.to_pylist()
    fields = dict(row["fields"])
    assert (row["op_type"], row["tiling_key"], row["block_dim"]) == ("QuantBatchMatmulV3", "24", 24)
    assert (row["base_m"], row["base_n"], row["base_k"], row["used_core_num"]) == (32, 64, 512, 24)
    assert (row["m_cnt"], row["n_cnt"], row["joined_by"]) == (2, 16, "thread")
    assert (fields["realSingleCoreN"], fields["isPertoken"], fields["depthA1"]) == ("480", "1", "8")
    assert (row["stream_id"], row["task_id"], row["schedule_mode"]) == (2, 9, 1)


def test_a_dump_without_all_its_chunks_stays_undecoded_and_is_reported(log: Log, read: Read) -> None:
    log.dump("QuantBatchMatmulV3", 24, quant_matmul_words(40), chunk=40)
    del log.lines[1]
    log.op(
        "Tiling Key: 24, len: 376, numBlocks: 24, Workspace Num: 1.",
        name="aclnnQuantMatmulV4_3_QuantBatchMatmulV3AiCore",
    )
    result = read()
    (row,) = result.table.to_pylist()
    (refused,) = result.quarantine.to_pylist()
    assert (row["tiling_key"], row["block_dim"], row["base_m"]) == ("24", 24, None)
    assert len(dict(row["fields"])["tiling_data"].split(",")) == 54
    assert (refused["rule"], refused["source_line"]) == ("incomplete_dump", 1)
    assert "54 of 94 words" in refused["reason"]


def test_a_tiling_of_the_calling_thread_joins_the_launch_of_the_queue_thread_by_sequence(
    log: Log, read: Read
) -> None:
    for sequence, m in (("3", 40), ("4", 50)):
        log.op("aic num: 24, aiv num: 48, deterministic level: 0, is deterministic on: 0",
               name=f"aclnnQuantMatmulV4_{sequence}", tid=1, level="INFO")  # fmt: skip
        log.dump("QuantBatchMatmulV3", 24, quant_matmul_words(m), tid=1)
    for sequence in ("4", "3"):
        name = f"aclnnQuantMatmulV4_{sequence}_QuantBatchMatmulV3AiCore"
        log.op("Tiling Key: 24, len: 376, numBlocks: 24, Workspace Num: 1.", name=name, tid=2)
        log.launch(name, 24, "0xa", tid=2)
    third, fourth = by_sequence(read())
    assert dict(third["fields"])["M"] == "40" and dict(fourth["fields"])["M"] == "50"
    assert third["joined_by"] == fourth["joined_by"] == "sequence"
    assert third["core_num"] == 24 and dict(third["fields"])["aiv_num"] == "48"


def test_without_sequences_tilings_of_another_thread_join_in_order(log: Log, read: Read) -> None:
    for m in (40, 50):
        log.dump("QuantBatchMatmulV3", 24, quant_matmul_words(m), tid=1)
    for sequence in ("3", "4"):
        name = f"aclnnQuantMatmulV4_{sequence}_QuantBatchMatmulV3AiCore"
        log.op("Tiling Key: 24, len: 376, BlockDim: 24, Workspace Num: 1.", name=name, tid=2)
    rows = by_sequence(read())
    assert [dict(row["fields"])["M"] for row in rows] == ["40", "50"]
    assert [row["joined_by"] for row in rows] == ["order", "order"]


def test_a_cached_launch_gets_its_key_through_the_function_handle(log: Log, read: Read) -> None:
    log.op("Get function handle by tiling key [10000000000022420943] successfully, function handle: 0xa",
           name="aclnnX_1_XAiCore", level="INFO")  # fmt: skip
    log.launch("aclnnX_1_XAiCore", 20, "0xa", level="DEBUG")
    log.kernel("X", "10000000000022420943", task=4, blocks=20)
    (row,) = read().table.to_pylist()
    assert (row["tiling_key"], row["key_source"]) == ("10000000000022420943", "launch_line")
    assert (row["block_dim"], row["joined_by"], row["task_id"]) == (20, "handle", 4)


def test_a_launch_whose_handle_nobody_named_gets_its_key_from_the_kernel_name(log: Log, read: Read) -> None:
    log.launch("aclnnX_1_XAiCore", 20, "0xb", level="DEBUG")
    log.kernel("X", "77", task=4, blocks=20)
    (row,) = read().table.to_pylist()
    assert (row["tiling_key"], row["key_source"], row["op_sequence"]) == ("77", "kernel_name", "1")


def test_the_helper_memset_is_a_launch_of_its_own(log: Log, read: Read) -> None:
    name = "aclnnX_1_XAiCore"
    log.op("Tiling Key: 5, len: 16, numBlocks: 8, Workspace Num: 1.", name=name)
    log.op("Tiling Key: 2, len: 64, numBlocks: 48", name=name)
    log.launch(name, 48, "0xc")
    log.kernel("MemSet", "2", task=1, blocks=48)
    log.launch(name, 8, "0xd")
    log.kernel("X", "5", task=2, blocks=8)
    rows = {row["op_type"]: row for row in read().table.to_pylist()}
    assert (rows["MemSet"]["tiling_key"], rows["MemSet"]["task_id"]) == ("2", 1)
    assert (rows["X"]["tiling_key"], rows["X"]["block_dim"], rows["X"]["task_id"]) == ("5", 8, 2)


@pytest.mark.parametrize("word", ["numBlocks", "blockDim"])
def test_a_one_kernel_call_joins_decision_workspace_and_launch(log: Log, read: Read, word: str) -> None:
    name = "aclnnDynamicQuant_12"
    log.op(f"Tiling outputs of DynamicQuant are [tilingKey: 100, {word}: 8, scheMode: 0, needAtomic: 0, "
           f"aicpuNumBlocks: 0, dynBufSize: 0].", name=name, level="INFO")  # fmt: skip
    log.op(
        "Op[DynamicQuant] workspace num is 1, workspaceLen is 16777216 bytes, bin path is /x.o.", name=name
    )
    log.op("[PrintIo]Op DynamicQuant input[0] Get StorageFormat ND, dataType DT_BF16, shape [32, 4096], "
           "addr is 0x1", name=name, level="INFO")  # fmt: skip
    log.op(f"Launch dynamic kernel DynamicQuant task, tilingKey is 100, scheMode is 0, {word} is 8, "
           f"stream is 0x9", name=name, level="INFO")  # fmt: skip
    log.kernel("DynamicQuant", "100", task=3, blocks=8)
    (row,) = read().table.to_pylist()
    assert (row["op_type"], row["tiling_key"], row["key_source"]) == ("DynamicQuant", "100", "tiling_log")
    assert (row["block_dim"], row["workspace_bytes"], row["ub_template"]) == (8, 16777216, "special_last_dim")
    assert (row["input_shapes"], row["input_dtypes"], row["input_formats"]) == (
        [[32, 4096]], ["DT_BF16"], ["ND"])  # fmt: skip
    assert row["task_id"] == 3


def test_grouped_matmul_says_base_blocks_single_n_and_tuning(log: Log, read: Read) -> None:
    op = {"name": "GroupedMatmul:GroupedMatmul"}
    log.op("GMM_tiling: groupNum_ is 16, maxM_ is 9216, maxK_ is 4096, maxN_ is 4096.", **op, level="INFO")
    log.op("GMM_tiling: baseM is 128, baseK is 128, baseN is 256.", **op, level="INFO")
    for field, value in {"usedCoreNum": 24, "bestSingleN": 1024, "tuning_config": 0, "baseM": 128}.items():
        log.op(f"GMM_tiling_new: {field} is {value}", **op)
    name = "aclnnGroupedMatmulV4_8_GroupedMatmulAiCore"
    log.op("Tiling Key: 34697052674, len: 1872, numBlocks: 24, Workspace Num: 1.", name=name)
    (row,) = read().table.to_pylist()
    assert (row["base_m"], row["base_n"], row["base_k"]) == (128, 256, 128)
    assert (row["single_n"], row["tuning_config"], row["used_core_num"]) == (1024, 0, 24)
    assert (row["aiv_aic_ratio"], row["op_type"]) == ("1:1", "GroupedMatmul")
    assert dict(row["fields"])["maxM"] == "9216"


def test_dynamic_quant_prints_its_rows(log: Log, read: Read) -> None:
    log.op("rowNum: 16, vectorCoreNum: 48, rowLen: 4096, tiling coreNum: 4, headCoreNum: 3",
           name="DynamicQuant:DynamicQuant", level="INFO")  # fmt: skip
    log.op("Tiling Key: 100, len: 240, numBlocks: 4, Workspace Num: 1.",
           name="aclnnDynamicQuant_1_DynamicQuantAiCore")  # fmt: skip
    (row,) = read().table.to_pylist()
    assert (row["used_core_num"], row["block_dim"], row["ub_template"]) == (4, 4, "special_last_dim")
    assert dict(row["fields"])["rowLen"] == "4096"


def test_other_keys_and_blocks_of_the_same_launch_are_kept_as_contradictions(log: Log, read: Read) -> None:
    name = "aclnnX_1_XAiCore"
    log.op("Tiling Key: 5, len: 16, numBlocks: 8, Workspace Num: 1.", name=name)
    log.launch(name, 9, "0xd")
    log.kernel("X", "6", task=2, blocks=10)
    (row,) = read().table.to_pylist()
    assert (row["tiling_key"], row["block_dim"]) == ("5", 8)
    assert row["key_contradictions"] == ["6 (kernel_name)"]
    assert row["block_contradictions"] == ["9 (launch_line)", "10 (launch_line)"]


def test_a_runtime_line_alone_gives_key_blocks_stream_and_task(log: Log, read: Read) -> None:
    log.kernel("MatMulV3", "4162", task=65535, blocks=32)
    log.add("INFO", "RUNTIME", 5,
            f"[aix_starsv2.cc:2] 7 F: kernel info : device_id=1, stream_id=4, kernelType=0, "
            f"kernel_name=Add_{HASH}_high_performance_210000000_mix_aiv, arg_size=8")  # fmt: skip
    first, second = read().table.to_pylist()
    assert (first["tiling_key"], first["key_source"], first["block_dim"]) == ("4162", "kernel_name", 32)
    assert (second["tiling_key"], second["device_id"], second["task_id"]) == ("210000000", 1, None)
    assert second["op_type"] == "Add"


def test_exception_dump_registration_joins_a_launch_with_its_task(log: Log, read: Read) -> None:
    name = "aclnnX_1_XAiCore"
    log.op("Tiling Key: 5, len: 16, numBlocks: 8, Workspace Num: 1.", name=name)
    log.launch(name, 8, "0xd")
    log.op("AdumpAddExceptionOperatorInfo block_dim: 8, dev_func: X_f, magic: M, tiling key: 5, data: ",
           name=name, level="INFO")  # fmt: skip
    log.op("AdumpAddExceptionOperatorInfo L2 = aclnnX_1, L0 = XAiCore, device_id = 3, task_id = 7, "
           "stream_id = 2, res = 0", name=name, level="INFO")  # fmt: skip
    (row,) = read().table.to_pylist()
    assert (row["device_id"], row["stream_id"], row["task_id"], row["kernel_name"]) == (3, 2, 7, "X_f")


def test_a_marked_continuation_line_belongs_to_the_message_before_it(log: Log, read: Read) -> None:
    log.add("DEBUG", "OP", 5, "[op.h:25][NNOP][DoTiling][7]")
    log.lines.append("OpName:[aclnnX_4_XAiCore] Tiling Key: 5, len: 16, numBlocks: 8, Workspace Num: 1.")
    result = read()
    (row,) = result.table.to_pylist()
    assert (row["op_sequence"], row["tiling_key"], row["tid"], row["source_line"]) == ("4", "5", 7, 2)
    assert result.facts["files"][0]["continued_lines"] == 1


def test_state_goes_on_over_the_rotated_files_of_a_process(tmp_path: Path, log: Log, origin: Origin) -> None:
    log.op("Save launch config to cache, engine type: 1, isFatBin: 0, tilingKey: 9, numBlocks: 4, "
           "funcHandle: 0xe, binHandle: 0x1", name="aclnnX_1_XAiCore")  # fmt: skip
    log.launch("aclnnX_2_XAiCore", 4, "0xe", level="DEBUG")
    files = []
    for stamp, line in zip(("20261129145533000", "20261129145537845"), log.lines, strict=True):
        path = tmp_path / f"plog-5_{stamp}.log"
        path.write_text(line + "\n")
        files.append(LogFile(path, f"log/debug/plog/{path.name}"))
    (row,) = read_plog(reversed(files), origin).table.to_pylist()
    assert (row["tiling_key"], row["source_file"]) == ("9", files[1].name)


def test_an_announced_tiling_fact_that_cannot_be_read_is_refused(log: Log, read: Read) -> None:
    log.op("Tiling Key: -3, len: what", name="aclnnX_1_XAiCore")
    result = read()
    (refused,) = result.quarantine.to_pylist()
    assert (refused["rule"], refused["source_line"]) == ("unreadable_tiling_line", 1)
    assert refused["raw_text"].endswith("Tiling Key: -3, len: what")
