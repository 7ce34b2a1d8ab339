"""Captures as the measuring program writes them, by hand: what is read, what is refused, what is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewatch.data_contracts import schema
from tilewatch.tasks.collect.manifest import CaptureError, write_manifest
from tilewatch.tasks.read.captures.operator_capture import OBSERVED, read_capture

A, B = "a" * 16, "b" * 16
CAPTURE: dict[str, Any] = {
    "schema_version": 1, "run_id": "01J", "experiment": "B", "experiment_name": "quant_matmul",
    "plan_hash": "p", "arm": "nz", "role": "main", "kind": "timing", "process_index": 3, "block": 3,
    "seed": 7, "agent": "cpu", "lease_id": "l", "build": {"label": "x", "build_id": "y"}, "method": {},
    "method_hash": "m", "method_version": 1, "evidence": "measured", "status": "complete",
    "failure_reason": None, "started_ns": 1_795_972_245_000_000_001, "ended_ns": 1_795_972_246_000_000_002,
    "sample_count": 2, "discarded_count": 1,
}  # fmt: skip
ENVIRONMENT: dict[str, Any] = {
    "build": {"label": "x", "build_id": "y", "components": {"torch": "2.13.0"}},
    "device": {"host": "h", "device": "EPYC", "device_class": "cpu EPYC", "cores": 2, "governor": None},
    "pinned_cpus": [1],
}
SAMPLE: dict[str, Any] = {
    "point_id": A, "sample": 0, "position": 0, "calls": 4, "interval_ns": 8_001, "duration_ns": 2_000,
    "null_reason": None, "host_enqueue_ns": None, "device_event_ns": None, "warm_up": False,
    "discarded": False, "discard_reason": None, "throttled": False,
}  # fmt: skip
RECORD: dict[str, Any] = {
    "point_id": A, "order": 0, "status": "measured", "reason": None, "main_operator": "npu::npu_quant_matmul",
    "kernels_per_call": {"npu::npu_quant_matmul": 1}, "dispatched_operator": "cpu_quant_matmul_weight_nz",
    "weight_format": "FRACTAL_NZ", "strides_x": [64, 1], "strides_w": [32, 1], "profiled_calls": None,
}  # fmt: skip

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a capture folder; lines may be text that is no JSON."""

    def make(
        samples: list[Any],
        records: list[Any] | None = None,
        capture: dict[str, Any] | None = None,
        environment: dict[str, Any] | None = None,
    ) -> Path:
        folder = tmp_path / "c"
        folder.mkdir()
        (folder / "capture.json").write_text(json.dumps(CAPTURE | (capture or {})))
        (folder / "environment.json").write_text(json.dumps(environment or ENVIRONMENT))
        (folder / "plan.json").write_text(json.dumps({"points": [{"point_id": A}, {"point_id": B}]}))
        for name, rows in (("samples.jsonl", samples), ("points.jsonl", records or [RECORD])):
            text = [row if isinstance(row, str) else json.dumps(row) for row in rows]
            (folder / name).write_text("".join(line + "\n" for line in text))
        write_manifest(folder)
        return folder

    return make


def test_the_capture_row_says_who_measured_what_where(write: Write) -> None:
    tables = read_capture(write([SAMPLE]), raw_prefix="raw/B/x/id")
    (row,) = tables.captures.to_pylist()
    assert tables.captures.schema == schema("captures")
    assert (row["build"], row["build_id"], row["device"], row["device_class"]) == (
        "x",
        "y",
        "EPYC",
        "cpu EPYC",
    )
    assert (row["started_ns"], row["raw_prefix"]) == (1_795_972_245_000_000_001, "raw/B/x/id")
    assert dict(row["environment"]) == {
        "build.label": "x",
        "build.build_id": "y",
        "build.components.torch": "2.13.0",
        "device.host": "h",
        "device.device": "EPYC",
        "device.device_class": "cpu EPYC",
        "device.cores": "2",
        "pinned_cpus.0": "1",
    }


def test_samples_keep_their_line_and_the_time_inside_calls_is_summed_by_point(write: Write) -> None:
    warm_up = SAMPLE | {
        "sample": 1,
        "position": 1,
        "warm_up": True,
        "interval_ns": 4_000,
        "duration_ns": 1_000,
    }
    tables = read_capture(write([SAMPLE, warm_up]), raw_prefix="r")
    assert tables.samples.schema == schema("samples")
    assert tables.samples["duration_ns"].to_pylist() == [2_000, 1_000]
    assert tables.samples["source_line"].to_pylist() == [1, 2]
    assert tables.samples["process_index"].to_pylist() == [3, 3]
    (observed,) = tables.observed.to_pylist()
    assert tables.observed.schema == OBSERVED
    assert observed["operator_time_ns"] == 12_001
    assert (observed["weight_format"], observed["strides_w"]) == ("FRACTAL_NZ", [32, 1])


@pytest.mark.parametrize(
    ("bad", "field", "rule"),
    [
        ({**SAMPLE, "duration_ns": 0}, "duration_ns", "minimum"),
        ({**SAMPLE, "duration_ns": None}, "null_reason", "reason"),
        ({**SAMPLE, "calls": 0}, "calls", "minimum"),
        ({**SAMPLE, "point_id": "c" * 16}, "point_id", "planned"),
        ({**SAMPLE, "discarded": True}, "discard_reason", "reason"),
        ({**SAMPLE, "warm_up": None}, "warm_up", "required"),
        ({k: v for k, v in SAMPLE.items() if k != "sample"}, "sample", "required"),
        ({**SAMPLE, "sample": 9}, "sample", "unique"),
        ({**SAMPLE, "duration_ns": "fast"}, None, "json"),
        ({**SAMPLE, "duration_ns": 2.5}, None, "json"),
        ({**SAMPLE, "duration_ns": 2**70}, None, "json"),
        ('{"point_id": "aaa', None, "json"),
        ("[1, 2]", None, "json"),
    ],
    ids=str,
)
def test_a_bad_sample_goes_to_quarantine_with_its_line_and_the_rest_is_kept(
    write: Write, bad: Any, field: str | None, rule: str
) -> None:
    good = [SAMPLE | {"sample": 9, "position": 9}, SAMPLE | {"sample": 10, "position": 10}]
    tables = read_capture(write([good[0], bad, good[1]]), raw_prefix="r")
    assert tables.samples["sample"].to_pylist() == [9, 10]
    assert tables.samples["source_line"].to_pylist() == [1, 3]
    (refused,) = tables.quarantine.to_pylist()
    assert (refused["source_file"], refused["source_line"]) == ("samples.jsonl", 2)
    assert (refused["field"], refused["rule"]) == (field, rule)
    assert refused["raw_text"] == (bad if isinstance(bad, str) else json.dumps(bad))


def test_blank_lines_are_no_rows_and_no_faults(write: Write) -> None:
    tables = read_capture(write([SAMPLE, "", SAMPLE | {"sample": 1}]), raw_prefix="r")
    assert tables.samples["source_line"].to_pylist() == [1, 3]
    assert tables.quarantine.num_rows == 0


def test_a_point_without_a_duration_keeps_its_reason(write: Write) -> None:
    row = SAMPLE | {"interval_ns": None, "duration_ns": None, "null_reason": "tuple_input"}
    tables = read_capture(write([row]), raw_prefix="r")
    assert tables.samples["null_reason"].to_pylist() == ["tuple_input"]
    assert tables.observed["operator_time_ns"].to_pylist() == [None]


def test_a_failed_process_keeps_its_samples_and_gives_the_rest_its_reason(write: Write) -> None:
    unmeasured = {"point_id": B, "order": 1, "status": "unmeasured", "reason": None}
    capture = {"status": "failed", "failure_reason": "point x: boom"}
    tables = read_capture(write([SAMPLE], [RECORD, unmeasured], capture), raw_prefix="r")
    assert tables.captures["status"].to_pylist() == ["failed"]
    assert tables.samples.num_rows == 1
    assert tables.observed["status"].to_pylist() == ["measured", "unmeasured"]
    assert tables.observed["reason"].to_pylist() == [None, "point x: boom"]


def test_a_process_that_failed_at_once_has_no_samples(write: Write) -> None:
    tables = read_capture(write([]), raw_prefix="r")
    assert tables.samples.schema == schema("samples") and tables.samples.num_rows == 0
    assert tables.kernels.schema == schema("kernels")


@pytest.mark.parametrize(
    "line", ["nonsense", json.dumps(RECORD | {"status": "perhaps"}), json.dumps(RECORD | {"point_id": "z"})]
)
def test_a_bad_record_of_a_point_goes_to_quarantine(write: Write, line: str) -> None:
    tables = read_capture(write([SAMPLE], [line, RECORD]), raw_prefix="r")
    assert tables.observed["point_id"].to_pylist() == [A]
    (refused,) = tables.quarantine.to_pylist()
    assert (refused["table"], refused["source_file"], refused["source_line"]) == ("points", "points.jsonl", 1)


def test_a_changed_file_is_refused_with_its_name(write: Write) -> None:
    folder = write([SAMPLE])
    text = (folder / "samples.jsonl").read_text()
    (folder / "samples.jsonl").write_text(text.replace("2000", "1000"))
    with pytest.raises(CaptureError, match="samples.jsonl"):
        read_capture(folder, raw_prefix="r")


def test_a_capture_without_a_manifest_is_incomplete(write: Write) -> None:
    folder = write([SAMPLE])
    (folder / "manifest.json").unlink()
    with pytest.raises(CaptureError, match="incomplete"):
        read_capture(folder, raw_prefix="r")


@pytest.mark.parametrize(
    ("capture", "environment", "message"),
    [
        ({"schema_version": 2}, None, "schema_version 2; this program reads 1"),
        ({"build": "x"}, None, "lacks"),
        ({}, {"device": {"host": "h"}}, "lacks 'device'"),
    ],
)
def test_a_capture_that_does_not_say_what_it_is_is_refused(
    write: Write, capture: dict[str, Any], environment: dict[str, Any] | None, message: str
) -> None:
    with pytest.raises(CaptureError, match=message):
        read_capture(write([SAMPLE], capture=capture, environment=environment), raw_prefix="r")


@pytest.mark.parametrize(
    "name", ["capture.json", "environment.json", "plan.json", "points.jsonl", "samples.jsonl"]
)
def test_a_capture_that_lacks_a_file_is_refused_with_its_name(write: Write, name: str) -> None:
    folder = write([SAMPLE])
    (folder / name).unlink()
    write_manifest(folder)
    with pytest.raises(CaptureError, match=f"{name}: missing"):
        read_capture(folder, raw_prefix="r")


def test_reading_again_gives_the_same_tables(write: Write) -> None:
    folder = write([SAMPLE, "nonsense"])
    first, second = (read_capture(folder, raw_prefix="r") for _ in range(2))
    for name in ("captures", "samples", "kernels", "quarantine", "observed"):
        assert getattr(first, name).equals(getattr(second, name))
