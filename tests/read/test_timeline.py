"""Timelines: launches linked to device tasks, times exact, damaged events set apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler import json_events, timeline
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
    flagged = [row for row in result.table.to_pylist() if row["flags"]]
    assert len(flagged) == 34
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
