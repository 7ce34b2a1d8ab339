"""Timelines: launches linked to device tasks, times exact, damaged events set apart."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewatch.data_contracts import schema
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import json_events, kernel_details, timeline, trace_file
from tilewatch.tasks.read.profiler.profiler_folder import CHECKS, read_profiler
from tilewatch.tasks.read.result import ReadResult

TEXT = "samples/profiler/msinsight-pytorch-text"
OLD = "samples/profiler/msprof-analyze-ut/ut/advisor/timeline_advice/trace_view.json"


def task(number: int, start: str) -> dict[str, Any]:
    return {
        "name": f"kernel_{number}", "pid": 800, "tid": 3, "ts": start, "dur": 1.35, "ph": "X",
        "args": {"Task Type": "AI_CORE", "Physic Stream Id": 3, "Task Id": number, "connection_id": number},
    }  # fmt: skip


def flow(phase: str, number: int, time: str) -> dict[str, Any]:
    return {"ph": phase, "cat": "HostToDevice", "id": str(number << 32), "pid": 800, "tid": 3, "ts": time}


def events(count: int = 20) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 800, "args": {"name": "NPU"}}]
    for number in range(count):
        start = f"17041615114{number:05d}.204"
        found += [
            task(number, start),
            flow("f", number, start),
            flow("s", number, f"17041615114{number:05d}.199"),
        ]
    return found


def read(path: Path, data: bytes, origin: Origin) -> ReadResult:
    path.write_bytes(data)
    result = timeline.read(path, origin)
    result.table.validate(full=True)
    return result


def test_real_negative_latencies_are_kept_and_flagged(shared: Path, origin: Origin) -> None:
    result = timeline.read(
        shared / TEXT / "level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json", origin
    )
    assert (result.facts["linked"], result.facts["negative_latencies"]) == (215, 34)
    assert result.facts["least_latency_ns"] == -13565
    flagged = [row for row in result.table.to_pylist() if timeline.NEGATIVE_LATENCY in row["flags"]]
    assert len(flagged) == 34
    assert all(timeline.NO_SHAPES in row["flags"] for row in result.table.to_pylist())
    assert all(row["launch_latency_ns"] < 0 for row in flagged)
    assert all(row["start_ns"] - row["host_enqueue_ns"] == row["launch_latency_ns"] for row in flagged)


def test_an_older_timeline_names_streams_otherwise_and_is_linked_too(shared: Path, origin: Origin) -> None:
    result = timeline.read(shared / OLD, origin)
    assert (result.facts["linked"], result.facts["negative_latencies"]) == (274, 218)
    assert result.facts["least_latency_ns"] == -18591
    assert result.table["stream_id"].null_count == 0


def test_a_timeline_without_launches_says_so_and_keeps_the_tasks(shared: Path, origin: Origin) -> None:
    folder = shared / "samples/profiler/mindinsight-msprof-2023-08"
    (path,) = folder.rglob("msprof_0_2_1.json")
    result = timeline.read(path, origin)
    assert (result.facts["rows"], result.facts["linked"]) == (490, 0)
    assert result.table["start_ns"].to_pylist()[0] == 56635864664910


def test_times_keep_every_digit_whether_text_or_number(tmp_path: Path, origin: Origin) -> None:
    text = json.dumps(events()).encode()
    numbers = text.replace(b'"ts": "', b'"ts": ').replace(b'.204"', b".204").replace(b'.199"', b".199")
    assert numbers != text
    one, two = (read(tmp_path / "t.json", data, origin).table for data in (text, numbers))
    assert one["start_ns"].to_pylist()[:2] == [1704161511400000204, 1704161511400001204]
    assert one["launch_latency_ns"].to_pylist() == [5] * 20
    assert two.equals(one)


def test_flow_ids_beyond_64_bits_are_told_apart(tmp_path: Path, origin: Origin) -> None:
    content = events(2)
    for event in content:
        if "cat" in event:
            event["id"] = str(55426082093320372223 + (int(event["id"]) >> 32))
    assert read(tmp_path / "t.json", json.dumps(content).encode(), origin).facts["linked"] == 2


def test_the_events_of_an_object_are_read_as_those_of_an_array(tmp_path: Path, origin: Origin) -> None:
    data = json.dumps({"schemaVersion": 1, "traceEvents": events(), "otherData": {"x": [1, 2]}}).encode()
    result = read(tmp_path / "t.json", data, origin)
    assert (result.table.num_rows, result.quarantine.num_rows) == (20, 0)


@pytest.mark.parametrize("separator", [", ", ",", ",\r\n"])
@pytest.mark.parametrize("chunk", [100, 1000, 1 << 20])
def test_chunks_of_any_size_give_the_same_rows(
    tmp_path: Path, origin: Origin, separator: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = events()
    content[1]["args"]["Call stack"] = 'a "quoted" }, {"ph": "X"}, { text'
    content[4]["args"]["list"] = [{"a": 1}, {"b": 2}]
    data = ("[" + separator.join(json.dumps(event) for event in content) + "]").encode()
    whole = read(tmp_path / "t.json", data, origin)
    monkeypatch.setattr(json_events, "CHUNK_BYTES", chunk)
    cut = read(tmp_path / "t.json", data, origin)
    assert whole.table.num_rows == 20
    assert cut.table.equals(whole.table)
    assert cut.quarantine.num_rows == 0


@settings(max_examples=30, deadline=None)
@given(cut=st.floats(0.01, 1), chunk=st.sampled_from([300, 1 << 20]))
def test_a_timeline_cut_off_keeps_the_events_before_the_cut(
    tmp_path_factory: pytest.TempPathFactory, origin: Origin, cut: float, chunk: int
) -> None:
    data = json.dumps(events()).encode()
    data = data[: int(cut * len(data))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_events, "CHUNK_BYTES", chunk)
        result = read(tmp_path_factory.mktemp("cut") / "t.json", data, origin)
    complete = sum(data.find(f'"connection_id": {n}}}}}'.encode()) >= 0 for n in range(20))
    assert result.table.num_rows == complete
    between_events = data.rstrip().endswith((b"[", b"}}", b"}},", b'"}', b'"},', b"]"))
    assert result.quarantine.num_rows == (0 if between_events else 1)


@settings(max_examples=40, deadline=None)
@given(noise=st.text(max_size=30), at=st.integers(1, 59), chunk=st.sampled_from([300, 1 << 20]))
def test_a_damaged_event_is_refused_with_its_text_and_the_rest_kept(
    tmp_path_factory: pytest.TempPathFactory, origin: Origin, noise: str, at: int, chunk: int
) -> None:
    parts = [json.dumps(event) for event in events()]
    damaged = '{"ph": "X", "name": ' + noise.replace("{", "").replace("}", "") + " !}"
    data = ("[" + ", ".join([*parts[:at], damaged, *parts[at:]]) + "]").encode("utf-8", "replace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_events, "CHUNK_BYTES", chunk)
        result = read(tmp_path_factory.mktemp("bad") / "t.json", data, origin)
    assert result.table.num_rows == 20
    assert result.facts["linked"] == 20
    (refused,) = result.quarantine.to_pylist()
    assert f"at byte {data.find(damaged.encode('utf-8', 'replace'))}" in refused["reason"]


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[", b"[]", b"not json", b"\x00" * 500, b'{"a": 1}', b"[1, 2]", b"[{}]"]
)
def test_what_holds_no_event_gives_no_row_and_no_exception(
    tmp_path: Path, origin: Origin, data: bytes
) -> None:
    result = read(tmp_path / "t.json", data, origin)
    assert result.table.num_rows == 0


def test_only_the_kernels_of_a_timeline_are_kernels_and_a_collective_counts_once(
    shared: Path, origin: Origin
) -> None:
    case = shared / "cases/trace_view_only/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json"
    result = timeline.read(case, origin)
    types = Counter(result.table["task_type"].to_pylist())
    assert types == {"AI_CORE": 2, "MIX_AIV": 2, "DSA_SQE": 2, "COMMUNICATION": 1}
    others = result.also["device_tasks"]
    assert others.num_rows == 16 and "Notify Wait" in others["task_type"].to_pylist()
    assert others.schema.equals(schema("device_tasks"))


def test_a_timeline_alone_has_the_kernels_of_the_csv_beside_it(shared: Path, origin: Origin) -> None:
    folder = shared / TEXT / "level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"
    alone = timeline.read(folder / "trace_view.json", origin).table
    listed = kernel_details.read(folder / "kernel_details.csv", origin).table
    assert alone.num_rows == listed.num_rows == 191
    assert sorted(alone["name"].to_pylist()) == sorted(listed["name"].to_pylist())
    totals = [sum(table["duration_ns"].to_pylist()) for table in (alone, listed)]
    assert abs(totals[0] - totals[1]) <= 191 and round(totals[1] / 1e6, 1) == 114.9


def _annotation(name: str, start: int, duration: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": start,
        "dur": duration,
    }


def _launched(number: int, host: str, start: str) -> list[dict[str, Any]]:
    return [task(number, start), flow("s", number, host), flow("f", number, start)]


def test_kernels_have_the_number_of_the_profiler_step_they_were_enqueued_in(
    tmp_path: Path, origin: Origin
) -> None:
    content = [
        _annotation("ProfilerStep#7", 100, 50), _annotation("ProfilerStep#8", 150, 50),
        *_launched(1, "110.000", "140.000"), *_launched(2, "149.000", "170.000"),
        *_launched(3, "160.000", "171.500"), *_launched(4, "300.000", "310.000"),
    ]  # fmt: skip
    result = read(tmp_path / "trace_view.json", json.dumps(content).encode(), origin)
    assert result.table["step_id"].to_pylist() == [7, 7, 8, None]
    assert result.also == {}


def test_annotations_of_vllm_give_requests_tokens_and_phase_of_a_step(tmp_path: Path, origin: Origin) -> None:
    content = [
        _annotation("execute_context_0(0)_generation_8(8)", 100, 50),
        _annotation("execute_context_2(600)_generation_3(3)", 150, 50),
        _annotation("execute_new_1_cached_4", 200, 50),
        _annotation("ProfilerStep#1", 100, 150),
        *_launched(1, "110.000", "140.000"), *_launched(2, "160.000", "170.000"),
    ]  # fmt: skip
    folder = tmp_path / "vllm_profile"
    folder.mkdir()
    (folder / "rank0.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    (result,) = (r for name, r in read_profiler(folder, origin).items() if name != CHECKS)
    steps = result.also["stage_steps"].select(["phase", "mode", "requests", "tokens"]).to_pylist()
    assert [tuple(step.values()) for step in steps] == [
        ("decode", "GENERATION", 8, 8), ("prefill", "MIXED", 5, 603), ("unknown", "EXECUTE", 5, None),
    ]  # fmt: skip
    assert result.table["step_id"].to_pylist() == [0, 1]
    assert result.quarantine.num_rows == 0


def test_kernels_of_a_kineto_trace_have_stream_and_time_from_its_base(tmp_path: Path, origin: Origin) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "MatMul", "pid": 0, "tid": 7, "ts": 5.5, "dur": 2.25}
    document = {
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "traceEvents": [{**kernel, "args": {"stream": 7}}, {**kernel, "cat": "cpu_op"}],
    }
    path = tmp_path / "host.pt.trace.json"
    path.write_text(json.dumps(document))
    table = trace_file.read(path, origin).table
    assert table.select(["name", "stream_id", "start_ns", "duration_ns"]).to_pylist() == [
        {"name": "MatMul", "stream_id": 7, "start_ns": 1_700_000_000_000_005_500, "duration_ns": 2250}
    ]
