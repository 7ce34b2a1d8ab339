"""Bytes of any kind into every reader: no exception, no hang, and the tables keep their contracts.

A hang is ended by pytest's time limit for a test. ``make soak`` runs it with many more examples.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewatch.data_contracts import schema
from tilewatch.tasks.read.captures.server_results import STATISTICS
from tilewatch.tasks.read.captures.serving_bench import read as read_serving
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.profiler_files import KINDS, Reader
from tilewatch.tasks.read.profiler.torch_trace import Calls, read_torch_trace
from tilewatch.tasks.read.result import ReadResult

KERNEL = (
    b"Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Block Num,Mix Block Num,Input Shapes,"
    b"Input Data Types,aic_total_cycles,aic_mac_ratio\r\n"
    b'1,k,MatMulV3,MIX_AIC,1764246877079027.200\t,170.400,20,40,"""8,16;16,8""",INT8;INT8,10,0.5\r\n'
    b'1,"a,b",N/A,N/A,1764246877079037.200\t,0.020,0,0,N/A,N/A,N/A,N/A\r\n'
)
EVENT = {"ph": "X", "name": "k", "pid": 1, "tid": 2, "ts": "17.5", "dur": 1, "args": {"Task Type": "AI_CORE"}}
STEP = {
    "ph": "X",
    "cat": "user_annotation",
    "name": "step[DECODE bs=4]",
    "pid": 1,
    "tid": 2,
    "ts": 1.5,
    "dur": 9,
}
OPERATOR = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "npu::npu_quant_matmul",
    "pid": 1,
    "tid": 2,
    "ts": 2.5,
    "dur": 3,
    "args": {"Input type": ["signed char", "TensorList"], "Input Dims": [[4, 1024], [[1024, 256]]]},
}
RANGE = {"ph": "X", "cat": "user_annotation", "name": "point:a", "pid": 1, "tid": 2, "ts": 2, "dur": 9}
STAGE = {"baseTimeNanoseconds": 1, "traceEvents": [STEP, OPERATOR]}
COMMUNICATION = {"step1": {"p2p": {"a@1": {"Communication Time Info": {"Elapse Time(ms)": 1.5}}}}}
RESULT = {
    "completed": 2, "duration": 2.5, "max_concurrency": 4, "input_lens": [8, 8], "output_lens": [3, 2],
    "ttfts": [0.5, 0.25], "itls": [[0.125, 0.125], [0.5]], "errors": ["", ""], "latencies": [0.75, 0.75],
    "request_throughput": 0.8, "output_throughput": 2.0, "total_throughput": 8.4,
    **{f"{s}_{k}_ms": 1.5 for s in STATISTICS for k in ("ttft", "tpot", "itl", "e2e_latency")},
}  # fmt: skip
SEEDS: dict[str, tuple[str, bytes]] = {
    "kernel_details": ("kernel_details.csv", KERNEL),
    "op_summary": ("op_summary_1.csv", KERNEL),
    "op_statistic": ("op_statistic.csv", b"OP Type,Core Type,Count,Total Time(us)\nCast,AI_CORE,3,1.5\n"),
    "api_statistic": ("api_statistic.csv", b"Level,API Name,Time(us),Count\nacl,X_Tiling,1.5,3\n"),
    "task_time": ("task_time.csv", b"kernel_name,task_time(us),task_start(us)\nX_20,1.5,17.000\t\n"),
    "step_trace": ("step_trace_time.csv", b"Step,Computing,Free\n13,231290.09999999995,0.0\n"),
    "operator_details": (
        "operator_details.csv",
        b'Name,Call Stack,Host Self Duration(us),Host Total Duration(us)\na,"x;\ny",1.5,2\nb,,1,2\n',
    ),
    "communication": ("communication.json", json.dumps(COMMUNICATION).encode()),
    "timeline": ("trace_view.json", json.dumps([EVENT, EVENT, {"ph": "M", "pid": 1}]).encode()),
    "stage_profile": ("1-TP-0-DECODE.trace.json", json.dumps(STAGE).encode()),
    "torch_trace": ("trace.json", json.dumps({**STAGE, "traceEvents": [RANGE, OPERATOR]}).encode()),
    "analysis_db": ("analysis.db", b"SQLite format 3\x00"),
    "profiler_db": ("msprof_1.db", b"SQLite format 3\x00"),
    "profiler_info": ("profiler_info_0.json", b'{"rank_id": "0", "config": {"a": [1, {"b": null}]}}'),
    "msprof_op": (
        "Memory_20260101.csv",
        b"block_id,sub_block_id,aic_bw(GB/s),\n0,cube0,NA,\n1,vector0,1.5,\n",
    ),
    "serving_details": ("run.jsonl", json.dumps(RESULT).encode() + b"\n"),
    "serving": ("run.jsonl", b'{"completed": 1, "duration": 2.5}\n{"completed": 2, "duration": 1}\n'),
}


def read_trace(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    return read_torch_trace(path, source_file or path.name, origin, CALLS)


CALLS = {"a": Calls({"npu::npu_quant_matmul": 1}, "nd")}
READERS: dict[str, Reader] = {kind.name: kind.reader for kind in KINDS if kind.reader} | {
    "serving": read_serving,
    "serving_details": read_serving,
    "torch_trace": read_trace,
}
TOKENS = [
    b'"',
    b'""',
    b",",
    b"\n",
    b"\r",
    b"\r\n",
    b"\t",
    b"\x00",
    b"\xff",
    b"N/A",
    b"1e999",
    b"-",
    b"}, {",
    b"]",
    b"{",
]
TOKENS += [
    b"9" * 30,
    b"nan",
    b"\xef\xbb\xbf",
    b"null",
    b'"ts": 1.5',
    b"\\",
    b"\\u0000",
    b"true",
    b"[",
    b";",
    b" ",
]


@st.composite
def damage(draw: Any, seed: bytes) -> bytes:
    """The seed, cut, repeated, with tokens and random bytes put in and stretches taken out."""
    data = bytearray(seed * draw(st.integers(1, 3)))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        token = draw(st.sampled_from(TOKENS) | st.binary(max_size=8))
        data[at : at + draw(st.integers(0, 12))] = token
    return bytes(data)


def survive(reader: Reader, path: Path, data: bytes, origin: Origin) -> None:
    path.write_bytes(data)
    result = reader(path, origin, None)
    result.table.validate(full=True)
    result.quarantine.validate(full=True)
    assert result.quarantine.schema.equals(schema("quarantine"))


def test_every_reader_is_fuzzed() -> None:
    assert set(READERS) == set(SEEDS)


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_no_bytes_make_a_reader_raise(tmp_path: Path, origin: Origin, name: str) -> None:
    _fuzz(tmp_path, origin, name, 60)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(SEEDS))
def test_no_bytes_make_a_reader_raise_in_many_examples(tmp_path: Path, origin: Origin, name: str) -> None:
    _fuzz(tmp_path, origin, name, 20_000)


def _fuzz(folder: Path, origin: Origin, name: str, examples: int) -> None:
    file, seed = SEEDS[name]

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=damage(seed) | st.binary(max_size=200))
    def run(data: bytes) -> None:
        survive(READERS[name], folder / file, data, origin)

    run()
