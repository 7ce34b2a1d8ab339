"""Result lines of the SGLang serving benchmark client: one JSON object a run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.read.captures.server_results import LARGEST, is_number, read_results
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult

TIMING = "timing"
UNKNOWN_LOAD = "unknown"

_NEEDED = ("completed", "duration")
_LONGEST_S = 9e9
_LOAD = (
    "backend", "dataset_name", "request_rate", "max_concurrency", "random_input_len", "random_output_len",
    "random_range_ratio", "sharegpt_output_len",
)  # fmt: skip


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``serving_results`` from one JSONL file; ``also`` its ``requests`` and ``serving_metrics``.

    Durations are seconds in the file and latencies milliseconds. ``Infinity`` as request rate is no number
    and left out. A damaged line is refused. Requests and metrics are those of lines with per-request lists
    (``--output-details``), one repeat a line; the load is what the line says of it.
    """
    name = source_file or path.name
    rows: list[dict[str, Any]] = []
    refusals: list[Refusal] = []
    requests = 0
    loads: dict[int, str] = {}
    with path.open("rb") as stream:
        for line, raw in enumerate(stream, start=1):
            if not raw.strip():
                continue
            try:
                run = _run(raw)
            except ValueError as error:
                text = raw[:4000].decode("utf-8", "backslashreplace")
                refusals.append(Refusal(name, line, "serving_result", str(error), raw_text=text))
                continue
            requests += len(run.get("input_lens") or [])
            loads[line] = _load_id(run)
            place = {"source_file": name, "row_index": len(rows), "source_line": line}
            rows.append({**origin.columns(), **_row(run), **place})
    if not rows and not refusals:
        refusals.append(Refusal(name, None, "empty_file", "the file has no lines"))
    facts = {"rows": len(rows), "refused": len(refusals), "detailed_requests": requests}
    return ReadResult(
        from_rows("serving_results", rows),
        refused_rows(origin, "serving_results", refusals),
        facts,
        _details(path, name, origin, loads) if requests else {},
    )


def _details(path: Path, name: str, origin: Origin, loads: dict[int, str]) -> dict[str, pa.Table]:
    """Requests and metrics of the lines that were taken above; what is wrong with the others stands there."""
    launch = replace(origin, process_index=origin.process_index or 0)
    found = read_results(path, name, launch, TIMING, UNKNOWN_LOAD)
    taken = pa.array(sorted(loads), pa.int64())
    requests, metrics = (
        table.filter(pc.is_in(table["source_line"], value_set=taken))
        for table in (found.requests, found.metrics)
    )
    index = metrics.column_names.index("load_id")
    load = pa.array([loads[line] for line in metrics["source_line"].to_pylist()], pa.string())
    metrics = metrics.set_column(index, metrics.schema.field(index), load)
    return {"requests": requests, "serving_metrics": metrics}


def _load_id(run: dict[str, Any]) -> str:
    """The load as far as the line names it, hashed: runs of one load are repeats of one point."""
    body = {key: str(run.get(key)) for key in _LOAD} | {"prompts": len(run.get("input_lens") or [])}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def _run(raw: bytes) -> dict[str, Any]:
    run = json.loads(raw.decode("utf-8"))
    if not isinstance(run, dict):
        raise ValueError("a result is an object")
    if missing := [key for key in _NEEDED if not is_number(run.get(key))]:
        raise ValueError(f"no number {', '.join(missing)}: not a result of the serving benchmark")
    if not 0 <= run["duration"] < _LONGEST_S:
        raise ValueError(f"duration is {run['duration']} s")
    if not 0 <= run["completed"] < LARGEST:
        raise ValueError(f"completed is {run['completed']}")
    if not all(isinstance(run.get(key), list | None) for key in ("input_lens",)):
        raise ValueError("input_lens is no list")
    return run


def _row(run: dict[str, Any]) -> dict[str, Any]:
    texts = {key: run[key] for key in ("backend", "dataset_name") if isinstance(run.get(key), str)}
    limit = run.get("max_concurrency")
    return {
        **texts,
        "max_concurrency": limit if isinstance(limit, int) and is_number(limit) else None,
        "completed": int(run["completed"]),
        "duration_ns": round(run["duration"] * 1e9),
        "metrics": {key: float(value) for key, value in run.items() if is_number(value)},
    }
