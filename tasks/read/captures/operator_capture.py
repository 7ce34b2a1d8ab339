"""A capture folder of the measuring program → tables: identity, samples, kernels, what each point proved.

A folder that disagrees with its manifest is refused as a whole; a bad row goes to quarantine alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from tilewatch.data_contracts import from_rows, schema
from tilewatch.tasks.collect.manifest import CaptureError, Manifest, read_manifest, verify
from tilewatch.tasks.read.captures.device_kernels import Proof, read_device_kernels
from tilewatch.tasks.read.captures.samples import FILE as SAMPLES_FILE
from tilewatch.tasks.read.captures.samples import read_samples
from tilewatch.tasks.read.captures.tiling_capture import read_tilings
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.torch_trace import Calls, read_torch_trace
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult

SCHEMA_VERSION = 1
TRACE_FILE = "profiler/trace.json"
POINTS_FILE = "points.jsonl"
DEVICE_AGENTS = ("npu", "simulated")
"""Agents whose kernels stand in the device profiler's files."""
SOFTWARE_NPU = "software_npu"
"""What the npu agent notes of the device where the driver carries the stand-in's marker."""

OBSERVED = pa.schema(
    [
        pa.field("capture_id", pa.string(), nullable=False),
        pa.field("point_id", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("weight_format", pa.string()),
        pa.field("dispatched_operator", pa.string()),
        pa.field("strides_x", pa.list_(pa.int64())),
        pa.field("strides_w", pa.list_(pa.int64())),
        pa.field("profiled_calls", pa.int64()),
        pa.field("operator_time_ns", pa.int64()),
    ]
)
"""What a process says of each of its points: measured, failed or unmeasured; one row per (capture, point)."""

_COPIED = (
    "run_id", "experiment", "arm", "role", "kind", "process_index", "block", "agent", "evidence", "status",
    "failure_reason", "plan_hash", "method_hash", "method_version", "lease_id", "seed", "started_ns",
    "ended_ns", "sample_count", "discarded_count",
)  # fmt: skip
Document = dict[str, Any]


@dataclass(frozen=True)
class CaptureTables:
    """The tables of one capture. ``observed`` has the schema OBSERVED, the others their contracts."""

    captures: pa.Table
    samples: pa.Table
    kernels: pa.Table
    tilings: pa.Table
    quarantine: pa.Table
    observed: pa.Table


def read_capture(folder: Path, *, raw_prefix: str) -> CaptureTables:
    """Read one complete capture; ``raw_prefix`` is where the object store keeps it.

    Raises CaptureError where a file is missing, damaged or lacks a field that identifies the capture.
    """
    manifest = read_manifest(folder)
    verify(folder, manifest)
    capture, environment, plan = (
        read_document(folder / name) for name in ("capture.json", "environment.json", "plan.json")
    )
    captures = captures_row(folder, manifest, capture, environment, plan.get("die"), raw_prefix)
    origin = origin_of(captures)
    planned = _planned(folder, plan)
    records, refused = _records(folder / POINTS_FILE, origin, planned)
    identity = {"role": capture["role"], "method_hash": capture["method_hash"]}
    samples = read_samples(folder / SAMPLES_FILE, origin, identity, planned)
    _refuse_a_stand_in(folder, origin, environment)
    kernels, proofs = _kernels(folder, origin, capture, records)
    records = {point: _with_proof(record, proofs.get(point)) for point, record in records.items()}
    tilings = _tilings(folder, origin, capture, environment, plan, records)
    observed = _observed(origin, records, samples.facts["interval_ns"], capture["failure_reason"])
    parts = (samples, kernels, tilings)
    quarantine = pa.concat_tables([refused, *(part.quarantine for part in parts)])
    return CaptureTables(captures, samples.table, kernels.table, tilings.table, quarantine, observed)


def read_document(path: Path) -> Document:
    """One JSON document of a capture. Raises CaptureError naming the file."""
    try:
        document = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise CaptureError(f"{path}: missing") from None
    except orjson.JSONDecodeError as error:
        raise CaptureError(f"{path}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CaptureError(f"{path}: not an object")
    if document.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        found = document["schema_version"]
        raise CaptureError(f"{path}: schema_version {found}; this program reads {SCHEMA_VERSION}")
    return document


def _planned(folder: Path, plan: Document) -> list[str]:
    if missing := [name for name in (POINTS_FILE, SAMPLES_FILE) if not (folder / name).is_file()]:
        raise CaptureError(f"{folder / missing[0]}: missing")
    try:
        return [str(point["point_id"]) for point in plan["points"]]
    except (KeyError, TypeError) as error:
        raise CaptureError(f"{folder / 'plan.json'}: points without point_id ({error})") from error


def captures_row(
    folder: Path, manifest: Manifest, capture: Document, environment: Document, die: int | None,
    raw_prefix: str,
) -> pa.Table:  # fmt: skip
    """The ``captures`` row of a capture from its documents. Raises CaptureError where one lacks a field."""
    try:
        row = {name: capture[name] for name in _COPIED}
        row |= {"build": capture["build"]["label"], "build_id": capture["build"]["build_id"]}
        row |= {name: environment["device"][name] for name in ("host", "device", "device_class")}
        row["device"] += "" if die is None else f", die {die}"
    except (KeyError, TypeError) as error:
        raise CaptureError(f"{folder}: capture.json or environment.json lacks {error}") from error
    if row["agent"] == "simulated" and row["evidence"] != "simulated":
        raise CaptureError(f"{folder}: agent simulated with evidence {row['evidence']}; nothing was measured")
    row |= {
        "capture_id": manifest.capture_id,
        "file_count": len(manifest.files),
        "size_bytes": manifest.size_bytes,
        "raw_prefix": raw_prefix,
        "environment": list(_flat(environment)),
    }
    return from_rows("captures", [row])


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of a JSON document as (dotted name, text); list items are numbered, null is left out."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    elif value is not None:
        yield name, value if isinstance(value, str) else orjson.dumps(value).decode()


def origin_of(captures: pa.Table) -> Origin:
    """Identity of the one row of ``captures``."""
    row = captures.select(
        ["capture_id", "run_id", "build", "build_id", "experiment", "arm", "evidence", "process_index"]
    ).to_pylist()[0]
    return Origin(**row)


def _records(path: Path, origin: Origin, planned: list[str]) -> tuple[dict[str, Document], pa.Table]:
    """Records of ``points.jsonl`` by point id, and the lines that are none."""
    records: dict[str, Document] = {}
    refusals = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        fault, record = _record(line, planned)
        if fault is None and record["point_id"] not in records:
            records[record["point_id"]] = record
        else:
            reason = fault or "the point stands above"
            text = line.decode("utf-8", "replace")
            refusals.append(Refusal(POINTS_FILE, number, "record", reason, raw_text=text))
    return records, refused_rows(origin, "points", refusals)


def _record(line: bytes, planned: list[str]) -> tuple[str | None, Document]:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return f"not JSON: {error}", {}
    if not isinstance(record, dict) or record.get("point_id") not in planned:
        return "point_id is no point of plan.json", {}
    if record.get("status") not in ("measured", "failed", "unmeasured"):
        return f"status {record.get('status')!r} is not known", {}
    return None, record


def _refuse_a_stand_in(folder: Path, origin: Origin, environment: Document) -> None:
    """What a driver without a device produced is never evidence ``measured``. Raises CaptureError."""
    if SOFTWARE_NPU in environment["device"] and origin.evidence == "measured":
        raise CaptureError(f"{folder}: written on a software NPU, but filed as measured")


def _with_proof(record: Document, proof: Proof | None) -> Document:
    """The record with the operator that ran; failed where a kernel read another format than was loaded."""
    if proof is None:
        return record
    loaded = record.get("weight_format")
    if loaded is not None and proof.formats != (loaded,):
        read_formats = " and ".join(proof.formats)
        reason = f"the kernels read {read_formats}, although the weight was loaded as {loaded}"
        return record | {"status": "failed", "reason": reason}
    return record | {"dispatched_operator": proof.operator}


def _kernels(
    folder: Path, origin: Origin, capture: Document, records: Mapping[str, Document]
) -> tuple[ReadResult, dict[str, Proof]]:
    if capture["agent"] in DEVICE_AGENTS and capture["kind"] != "tiling":
        lead_in, steps = capture.get("profiler_lead_in_calls", 0), capture.get("profiler_step_a_point", False)
        return read_device_kernels(folder, origin, records, lead_in, steps)
    if not (folder / TRACE_FILE).is_file():
        return ReadResult(schema("kernels").empty_table(), refused_rows(origin, "kernels", [])), {}
    calls = {
        point: Calls(
            {name: count * record["profiled_calls"] for name, count in record["kernels_per_call"].items()},
            record["weight_format"],
        )
        for point, record in records.items()
        if record.get("profiled_calls")
    }
    return read_torch_trace(folder / TRACE_FILE, TRACE_FILE, origin, calls), {}


def _tilings(
    folder: Path,
    origin: Origin,
    capture: Document,
    environment: Document,
    plan: Document,
    records: Mapping[str, Document],
) -> ReadResult:
    """What a tiling process logged; other processes run without logs."""
    if capture["kind"] != "tiling":
        return ReadResult(schema("tilings").empty_table(), refused_rows(origin, "tilings", []))
    operations = {point["point_id"]: point["operation"] for point in plan["points"]}
    calls = [
        (point, operations[point])
        for point, record in records.items()
        for _ in range(record.get("profiled_calls") or 0)
    ]
    components = environment.get("build", {}).get("components", {})
    return read_tilings(folder, origin, calls, components.get("cann"))


def _observed(
    origin: Origin, records: Mapping[str, Document], interval_ns: Mapping[str, int], failure: str | None
) -> pa.Table:
    rows = [
        {name: record.get(name) for name in OBSERVED.names}
        | {
            "capture_id": origin.capture_id,
            "reason": record["reason"] if record["status"] != "unmeasured" else failure,
            "operator_time_ns": interval_ns.get(point),
        }
        for point, record in records.items()
    ]
    return pa.Table.from_pylist(rows, schema=OBSERVED)
