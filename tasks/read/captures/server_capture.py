"""The capture of one launch of a server → its launch, requests, metrics, and what its profile shows.

A folder that disagrees with its manifest is refused as a whole; a bad result line goes to quarantine alone. A
launch that failed, or that was profiled, gives no metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from tilewatch.data_contracts import from_rows, schema
from tilewatch.tasks.collect.manifest import CaptureError, read_manifest, verify
from tilewatch.tasks.read.captures.operator_capture import captures_row, origin_of, read_document
from tilewatch.tasks.read.captures.server_results import read_results
from tilewatch.tasks.read.profiler import stage_profile

FORMATS = {2: "ND", 29: "FRACTAL_NZ"}
"""Names of the NPU format numbers that a weight may have."""
RESULTS = "results.jsonl"
PROFILES = "profiler"
_COPIED = (
    "capture_id", "run_id", "build", "build_id", "experiment", "arm", "process_index", "evidence", "agent",
    "block", "lease_id", "seed", "plan_hash", "method_hash", "method_version", "host", "device",
    "device_class", "started_ns", "ended_ns", "status",
)  # fmt: skip
Document = Mapping[str, Any]


@dataclass(frozen=True)
class LaunchTables:
    """The tables of one launch, each in its contract."""

    captures: pa.Table
    launches: pa.Table
    requests: pa.Table
    serving_metrics: pa.Table
    kernels: pa.Table
    stage_steps: pa.Table
    quarantine: pa.Table


def read_launch(folder: Path, *, raw_prefix: str) -> LaunchTables:
    """Read one complete capture of a launch; ``raw_prefix`` is where the object store keeps it.

    Raises CaptureError where a file is missing, damaged or lacks a field, or where the documents name
    different arms.
    """
    manifest = read_manifest(folder)
    verify(folder, manifest)
    capture, environment, launch = (
        read_document(folder / name) for name in ("capture.json", "environment.json", "launch.json")
    )
    captures = captures_row(folder, manifest, capture, environment, None, raw_prefix)
    origin = origin_of(captures)
    try:
        if launch["arm"] != capture["arm"]:
            raise CaptureError(f"{folder}: launch.json is of arm {launch['arm']}, not {capture['arm']}")
        results = read_results(folder / RESULTS, RESULTS, origin, launch["role"], launch["load"]["load_id"])
        row = _launch(captures.to_pylist()[0], launch, results.facts)
    except (KeyError, TypeError) as error:
        raise CaptureError(f"{folder / 'launch.json'}: lacks {error}") from error
    measured = row["status"] == "complete" and row["role"] == "timing"
    metrics = results.metrics if measured else schema("serving_metrics").empty_table()
    launches = from_rows("launches", [row])
    profiles = [
        stage_profile.read(path, origin, path.relative_to(folder).as_posix())
        for path in sorted((folder / PROFILES).rglob("*.trace.json*"))
    ]
    kernels = pa.concat_tables([schema("kernels").empty_table(), *(p.table for p in profiles)])
    steps = [p.also["stage_steps"] for p in profiles if "stage_steps" in p.also]
    stage_steps = pa.concat_tables([schema("stage_steps").empty_table(), *steps])
    quarantine = pa.concat_tables([results.quarantine, *(p.quarantine for p in profiles)])
    return LaunchTables(captures, launches, results.requests, metrics, kernels, stage_steps, quarantine)


def _launch(captures: Document, launch: Document, results: Document) -> dict[str, Any]:
    server, load, failure = launch["server"], launch["load"], launch["failure"] or {}
    checks = launch["verification"]["checks"]
    lines = failure.get("last_log_lines")
    return {
        **{name: captures[name] for name in _COPIED},
        "role": launch["role"],
        "failure_stage": failure.get("stage"),
        "failure_reason": failure.get("reason"),
        "last_log_lines": None if lines is None else "\n".join(lines),
        "server_kind": server["kind"],
        "server_command": " ".join(server["command"]),
        "server_environment": list(server["environment"].items()),
        "server_pid": server["pid"],
        "ready_after_ns": launch["ready_after_ns"],
        "arm_proved": launch["verification"]["proved"] if checks else None,
        "proof": [_sentence(check) for check in checks],
        "client": launch["client"]["name"],
        "client_version": launch["client"]["version"],
        "load_id": load["load_id"],
        **{name: load[name] for name in ("input_tokens", "output_tokens", "prompts")},
        **{name: load[name] for name in ("max_concurrency", "request_rate")},
        "load_seed": load["seed"],
        "repeats": launch["repeats_completed"],
        "forced_differences": launch["forced_differences"],
        **_told(launch["server_info_before"], launch["server_info_after"], results),
    }


def _sentence(check: Document) -> str:
    verdict = "as expected" if check["ok"] else f"expected {check['expected']}"
    return f"{check['what']}: {check['found']}, {verdict} ({check['source']})"


def _told(before: Document, after: Document, results: Document) -> dict[str, Any]:
    """What the server says of itself; counts are those between the two times that it was asked."""
    operators = after.get("dispatched_operators") or before.get("dispatched_operators")
    steps = _differences(before.get("steps"), after.get("steps"))
    total_ns = _differences(before.get("step_time_total_ns"), after.get("step_time_total_ns"))
    requests = _differences(before.get("step_requests_total"), after.get("step_requests_total"))
    experts = before.get("expert_tokens") or [], after.get("expert_tokens") or []
    decoded = steps.get("decode", 0)
    return {
        "weight_format": _weight_format(before),
        "quantization": before.get("quantization"),
        "dispatched_operators": list(operators.items()) if operators else None,
        "model": _model(before),
        "acceptance_length": _first(after.get("accept_length"), results["accept_length"]),
        "accept_rate": after.get("accept_rate"),
        "verify_step_ns": after.get("verify_step_ns"),
        "running_batch_mean": requests["decode"] / decoded if decoded and "decode" in requests else None,
        "kv_capacity_tokens": _first(before.get("kv_capacity_tokens"), before.get("max_total_num_tokens")),
        "expert_tokens": [b - a for a, b in zip(*experts, strict=True)] if all(experts) else None,
        "steps_by_phase": list(steps.items()),
        "mean_step_ns_by_phase": [(p, total_ns[p] / n) for p, n in steps.items() if n and p in total_ns],
    }


def _weight_format(info: Document) -> str | None:
    formats = {FORMATS.get(number) for number in (info.get("weight_formats") or {}).values()}
    if not formats or None in formats:
        return None
    return formats.pop() if len(formats) == 1 else "mixed"


def _model(info: Document) -> str | None:
    """The model as the server names it, or its shape."""
    model = info.get("model") or info.get("model_path")
    return orjson.dumps(model, option=orjson.OPT_SORT_KEYS).decode() if isinstance(model, dict) else model


def _differences(before: Document | None, after: Document | None) -> dict[str, int]:
    return {name: count - (before or {}).get(name, 0) for name, count in (after or {}).items()}


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
