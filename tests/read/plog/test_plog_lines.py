"""The grammar of single lines: levels, modules, prefixes, cuts, continuations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewatch.tasks.read.kernels.kernel_name import read_kernel_name, read_op_name
from tilewatch.tasks.read.plog.lines import header_census, parse_line

TIME = "2026-06-26-09:17:50.779.356"


@pytest.mark.parametrize(
    ("tail", "module", "shape", "tid", "function", "text"),
    [
        ("[op.h:1][NNOP][Tile][3373] errno[561000] OpName:[X] failed", "OP", "op", 3373, "Tile", "failed"),
        ("[a.cc:1] 3237717 Free: device_id=3", "RUNTIME", "call", 3237717, "Free", "device_id=3"),
        ("[a.cc:1]14349 LaunchKernel:on host", "RUNTIME", "call", 14349, "LaunchKernel", "on host"),
        ("[a.cc:1]1432 [allocator_1] Free:Free block", "GE", "call", 1432, "Free", "Free block"),
        ("[a.cc:1][status:STOP]182685 Init:done", "GE", "call", 182685, "Init", "done"),
        ("[a.cpp:1][tid:182685] [AIC_INFO] x", "IDEDD", "tid", 182685, None, "[AIC_INFO] x"),
        ("[a.cpp:1][tid:2956050]>>> [Dump]", "IDEDD", "tid", 2956050, None, "[Dump]"),
        ("[a.cpp:1][Run][tid:12790] go", "TDT", "function_tid", 12790, "Run", "go"),
        ("[a.c:1](tid:155320) go", "ATRACE", "paren_tid", 155320, None, "go"),
        ("[a.cpp:1] >>> (tid:370) go", "PROFILING", "paren_tid", 370, None, "go"),
        ("[a.c:1][ascend][curpid:5,6][drv][hdc][f]go", "DRV", "driver", 6, "f", "go"),
        ("[a.c:1][bufmng] [halGrp] go", "DRV", "buffer", None, "halGrp", "go"),
        ("[a.cc:1] [155320][a.cc][Init] go", "HCCL", "hccl", 155320, "Init", "go"),
        ('[a.cpp:1][CANNKB][Tid:370]"go"', "TUNE", "tune", 370, None, '"go"'),
        ("[a.cc:1][TF_ADAPTER] [b.cc:2] go", "FMK", "framework", None, None, "go"),
        ("[a.cpp:1][Print] Tiling: M = 1", "ASCENDCKERNEL", "function", None, "Print", "Tiling: M = 1"),
        ("[a.cc:1]67380 Init The value", "TEFUSION", "bare_call", 67380, "Init", "The value"),
        ("[a.cpp:2]odd module", "200", "plain", None, None, "odd module"),
    ],
)  # fmt: skip
def test_every_module_has_its_own_shape_after_the_place(
    tail: str, module: str, shape: str, tid: int | None, function: str | None, text: str
) -> None:
    line = parse_line(f"[INFO] {module}(216,):{TIME} {tail}".encode())
    assert line is not None
    assert (line.shape, line.tid, line.function, line.text) == (shape, tid, function, text)


@pytest.mark.parametrize("process", ["", "ker_TP2", "python3.x", "a(b)c", "VLLM::Worker"])
def test_the_process_name_is_any_text_and_the_pid_is_the_one_in_the_line(process: str) -> None:
    line = parse_line(f"[DEBUG] RUNTIME(3237631,{process}):{TIME} [a.cc:1] 7 F:x".encode())
    assert line is not None
    assert (line.prefix.process, line.pid) == (process, 3237631)


def test_grep_prefixes_device_tags_blanks_and_status_are_accepted() -> None:
    for before, after in (
        ("log/plog-67380_20250418094019557.log:15072:", ""),
        ("", ""),
        ("[12,0,0,1]", ""),
        ("", "[status:INIT] "),
    ):
        line = parse_line(f"{before}[TRACE] GE(5, python3): {TIME} {after}[a.cc:1]5 F:x".encode())
        assert line is not None and line.text == "x"
    pasted = parse_line(f"a/plog-5.log:77:[INFO] GE(5,p):{TIME} [a.cc:1]5 F:x".encode())
    assert pasted is not None and pasted.prefix.grep_place == "a/plog-5.log:77"


def test_the_time_is_local_wall_time_in_nanoseconds() -> None:
    line = parse_line(f"[INFO] GE(5,p):{TIME} [a.cc:1]5 F:x".encode())
    assert line is not None
    assert line.logged_ns == 1_782_465_470_779_356_000


def test_a_line_of_1022_bytes_is_cut_whatever_grep_put_before_it() -> None:
    head = f"[INFO] GE(5,p):{TIME} [a.cc:1]5 F:"
    for length, cut in ((1021, False), (1022, True)):
        text = head + "7" * (length - len(head))
        line = parse_line(text.encode())
        pasted = parse_line(f"plog-5.log:1:{text}".encode())
        assert line is not None and pasted is not None
        assert line.cut is pasted.cut is cut


def test_text_in_the_middle_of_a_line_is_no_header() -> None:
    assert parse_line(b"second line with [ERROR] OP(1,x): inside") is None
    assert parse_line(b"") is None


def test_a_census_counts_headers_and_points_at_lines_that_only_look_like_one() -> None:
    good = f"[INFO] GE(5,p):{TIME} [a.cc:1]5 F:x\n".encode()
    bad = b"[INFO] GE(5,p):yesterday [a.cc:1]5 F:x\n"
    assert header_census(good + b"continued\n" + bad + good) == (2, [len(good) + 10])


@pytest.mark.parametrize(
    ("name", "op_type", "key"),
    [
        ("MatMulV3_00112233445566778899aabbccddeeff_4162", "MatMulV3", "4162"),
        ("Add_ee98c6628030785f610b924ab1557b31_high_performance_210000000", "Add", "210000000"),
        ("FlashAttentionScore_5881aeec01e51adb01fb1db8be1c04f0_10000000000022420943_mix_aic",
         "FlashAttentionScore", "10000000000022420943"),
        ("GatherV3_7869a97190b9b4d296d9414a005b954b_high_performance", "GatherV3", None),
        ("reshape_and_cache_200000000", "reshape_and_cache", "200000000"),
        ("16805736118314619649-1_0_1_Add_35", None, None),
        ("te_superkernel_911c4c5214b52a01ea22", None, None),
        ("te_gatherv2_657cb48fa1743a43209d_1__kernel0", "gatherv2", None),
        ("te_fused_op_conv2d_leaky_relu_5da727d18baf1050_0__kernel0", "fused_op_conv2d_leaky_relu", None),
        ("_Z12error_kernelPDhS_S_", None, None),
        ("Add_00112233445566778899aabbccddeeff_99999999999999999999", "Add", None),
    ],
)  # fmt: skip
def test_a_kernel_name_gives_operator_type_and_key(name: str, op_type: str | None, key: str | None) -> None:
    found = read_kernel_name(name)
    assert (found.op_type, found.tiling_key) == (op_type, key)


@pytest.mark.parametrize(
    ("name", "api", "sequence", "op_type"),
    [
        ("aclnnMatmul_1001_MatMulV3AiCore", "aclnnMatmul", "1001", "MatMulV3"),
        ("aclnnIndexPutImpl_5225123", "aclnnIndexPutImpl", "5225123", None),
        ("aclnnQuantMatmulV4_12_QuantBatchMatmulV3AiCore", "aclnnQuantMatmulV4", "12", "QuantBatchMatmulV3"),
        ("MatMulV3:MatMulV3", None, None, "MatMulV3"),
        ("/voxel_encoder/pfn_layers.0/Concat", None, None, "/voxel_encoder/pfn_layers.0/Concat"),
    ],
)
def test_an_op_name_gives_api_sequence_and_operator_type(
    name: str, api: str | None, sequence: str | None, op_type: str | None
) -> None:
    found = read_op_name(name)
    assert (found.api, found.sequence, found.op_type) == (api, sequence, op_type)


def test_the_drivers_own_line_form_has_thread_and_function(shared: Path) -> None:
    log = (shared / "cases/drv_log_lines/plog-370_20230713074107861.log").read_bytes().splitlines()
    lines = [parse_line(line) for line in log]
    found = [(line.shape, line.pid, line.tid, line.function) for line in lines if line is not None]
    assert found[:2] == [
        ("driver", 370, 370, "drvHdcServerCreate"), ("driver", 370, 370, "drvHdcSetSessionReference"),
    ]  # fmt: skip
    assert len(found) == 3 and lines[0] is not None and lines[0].text.startswith("Create server success.")
