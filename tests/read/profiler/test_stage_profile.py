"""Stage profiles of a server: steps and phases, kernels with their category, marks in a device's timeline."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tilewatch.data_contracts import schema
from tilewatch.tasks.read.captures.server_stages import read_stages
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import stage_profile, timeline
from tilewatch.tasks.read.profiler.step_marks import step_rows, with_steps

BASE_NS = 1_790_000_000_000_000_000


def event(
    name: str, start_us: float, duration_us: float, kind: str = "cpu_op", **args: Any
) -> dict[str, Any]:
    return {
        "ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 7, "ts": start_us, "dur": duration_us,
        "args": args,
    }  # fmt: skip


def mark(name: str, start_us: float, duration_us: float) -> dict[str, Any]:
    return event(name, start_us, duration_us, "user_annotation")


def trace(path: Path, events: list[dict[str, Any]]) -> Path:
    text = json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events})
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


DECODE = [
    mark("step[DECODE bs=4]", 0, 100),
    mark("quant:layers.0.wq_a", 10, 20),
    event("npu::npu_dynamic_quant", 12, 10),
    event("aten::amax", 13, 5),
    mark("dense:layers.0.wq_a", 30, 40),
    event(
        "npu::npu_quant_matmul", 31, 30,
        **{"Input type": ["signed char", "signed char"], "Input Dims": [[4, 1024], [1024, 256]]},
    ),
    event("aten::mm", 80, 10.25),
    mark("step[DECODE bs=3]", 100, 50),
    event("aten::add", 110, 5),
    event("aten::copy_", 160, 5),
    {"ph": "M", "name": "process_name", "args": {"name": "python"}},
]  # fmt: skip


def test_steps_say_their_phase_and_requests(tmp_path: Path, origin: Origin) -> None:
    result = stage_profile.read(trace(tmp_path / "1-TP-0-DECODE.trace.json.gz", DECODE), origin)
    steps = result.also["stage_steps"]
    assert steps.schema.equals(schema("stage_steps"))
    rows = steps.to_pylist()
    assert [(r["phase"], r["mode"], r["requests"], r["step_id"]) for r in rows] == [
        ("decode", "DECODE", 4, 0), ("decode", "DECODE", 3, 1),
    ]  # fmt: skip
    assert (rows[0]["start_ns"], rows[0]["end_ns"]) == (BASE_NS, BASE_NS + 100_000)


def test_kernels_are_the_outermost_operators_with_the_category_of_their_range(
    tmp_path: Path, origin: Origin
) -> None:
    table = stage_profile.read(trace(tmp_path / "1-TP-0-DECODE.trace.json", DECODE), origin).table
    assert table.schema.equals(schema("kernels"))
    assert [(r["name"], r["category"], r["step_id"]) for r in table.to_pylist()] == [
        ("npu::npu_dynamic_quant", "quant", 0),
        ("npu::npu_quant_matmul", "dense", 0),
        ("aten::mm", "dense", 0),
        ("aten::add", "other", 1),
        ("aten::copy_", "other", None),
    ]
    (matmul,) = [r for r in table.to_pylist() if r["name"] == "npu::npu_quant_matmul"]
    assert matmul["input_shapes"] == [[4, 1024], [1024, 256]] and matmul["input_dtypes"] == ["int8", "int8"]
    assert table["duration_ns"].to_pylist()[2] == 10_250


@pytest.mark.parametrize(
    ("mode", "phase"),
    [
        ("EXTEND bs=8 toks=1024", "prefill"), ("MIXED bs=8", "prefill"), ("DECODE bs=8", "decode"),
        ("TARGET_VERIFY bs=8", "target_verify"), ("DRAFT_EXTEND bs=8", "draft"), ("IDLE bs=0", "unknown"),
    ],
)  # fmt: skip
def test_the_forward_mode_decides_the_phase(mode: str, phase: str, origin: Origin) -> None:
    (row,) = step_rows([(1, f"step[{mode}]", 0, 1)], origin, "f", bounds_kernels=True).to_pylist()
    assert row["phase"] == phase and row["tokens"] == (1024 if "toks" in mode else None)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"{", "trace"), (b'{"traceEvents": [1]}', "trace"), (b"\x1f\x8bbroken", "trace"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0)[:-9], "trace"), (b'{"traceEvents": []}', "no_steps"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_gives_one_refusal_and_no_row(
    content: bytes, rule: str, tmp_path: Path, origin: Origin
) -> None:
    path = tmp_path / "1-TP-0-DECODE.trace.json.gz"
    path.write_bytes(content)
    result = stage_profile.read(path, origin)
    assert result.table.num_rows == 0 and result.quarantine["rule"].to_pylist() == [rule]


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ({"ts": "soon"}, "ts or dur is no time"),
        ({"name": None}, "name is no text"),
        ({"args": 3}, "args is no object"),
        ({"args": {"Input type": 3, "Input Dims": []}}, "Input type or Input Dims is no list"),
        ({"args": {"Input type": ["float"], "Input Dims": [["x"]]}}, 'Input Dims of a float is ["x"]'),
        ({"args": {"Input type": ["TensorList"], "Input Dims": [2]}}, "Input Dims of a TensorList is 2"),
    ],
)
def test_an_event_that_cannot_be_read_is_refused_alone(
    odd: dict[str, Any], reason: str, tmp_path: Path, origin: Origin
) -> None:
    broken = [*DECODE, {**event("aten::mul", 111, 3), **odd}]
    result = stage_profile.read(trace(tmp_path / "1-TP-0-DECODE.trace.json", broken), origin)
    (refused,) = result.quarantine.to_pylist()
    assert result.table.num_rows == 5
    assert (refused["source_line"], refused["reason"]) == (len(broken), reason)


def test_the_folder_of_a_profiled_launch_gives_both_stages_named_from_the_capture(
    tmp_path: Path, origin: Origin
) -> None:
    folder = tmp_path / "profiler"
    folder.mkdir()
    trace(folder / "1-TP-0-DECODE.trace.json.gz", DECODE)
    trace(folder / "1-TP-0-EXTEND.trace.json.gz", [mark("step[EXTEND bs=1]", 0, 9), event("aten::mm", 1, 2)])
    (folder / "1-TP-1-DECODE.trace.json.gz").write_bytes(b"{")
    found = read_stages(folder, origin)
    assert set(found.stage_steps["phase"].to_pylist()) == {"prefill", "decode"}
    assert found.kernels.num_rows == 6
    assert "profiler/1-TP-0-EXTEND.trace.json.gz" in found.kernels["source_file"].to_pylist()
    assert found.quarantine["source_file"].to_pylist() == ["profiler/1-TP-1-DECODE.trace.json.gz"]


def test_device_kernels_belong_to_the_step_they_were_enqueued_in(tmp_path: Path, origin: Origin) -> None:
    """The device runs behind the host; replayed kernels have no enqueue time of their own."""
    path = tmp_path / "trace_view.json"
    path.write_text(
        json.dumps([mark("step[DECODE bs=1]", 0, 10), mark("step[DECODE bs=1]", 20, 10), event("x", 1, 1)])
    )
    steps = timeline.read(path, origin).also["stage_steps"]
    assert steps["bounds_kernels"].to_pylist() == [False, False]
    host = [1_000, None, 5_000, 12_000, None, 21_000]
    spec = schema("kernels")
    columns = {"host_enqueue_ns": host, "start_ns": [30, 40, 50, 60, 70, 80]}
    kernels = pa.table({f.name: pa.array(columns.get(f.name, [None] * 6), f.type) for f in spec})
    assert with_steps(kernels, steps)["step_id"].to_pylist() == [0, 0, 0, None, None, 1]


def test_a_timeline_without_marks_gives_no_step(tmp_path: Path, origin: Origin) -> None:
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps([event("x", 1, 1)]))
    assert timeline.read(path, origin).also == {}
