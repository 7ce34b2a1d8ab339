"""Results of serving clients, one JSON object a run: SGLang, ``vllm bench serve``, ``evalscope perf``.

SGLang and vLLM share the names of the numbers; those of evalscope are sentences with their unit, and are
stored under the names of the other two, in milliseconds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.read.captures.server_results import LARGEST, is_number, read_results
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult

TIMING = "timing"
UNKNOWN_LOAD = "unknown"

EVALSCOPE = "Time taken for tests (s)"
_EVALSCOPE = {
    EVALSCOPE: "duration",
    "Succeed requests": "completed",
    "Total requests": "num_prompts",
    "Number of concurrency": "max_concurrency",
    "Request throughput (req/s)": "request_throughput",
    "Output token throughput (tok/s)": "output_throughput",
    "Total token throughput (tok/s)": "total_token_throughput",
    "Average input tokens per request": "random_input_len",
    "Average output tokens per request": "random_output_len",
}
_EVALSCOPE_SECONDS = {
    "Average time to first token (s)": "mean_ttft_ms",
    "Average time per output token (s)": "mean_tpot_ms",
    "Average inter-token latency (s)": "mean_itl_ms",
    "Average latency (s)": "mean_e2el_ms",
}
_CONFIGURED = (
    ("model", "model_id"), ("backend", "backend"), ("dataset", "dataset_name"),
    ("concurrency", "max_concurrency"), ("request rate", "request_rate"), ("burstiness", "burstiness"),
    ("prompts", "num_prompts"), ("random input length", "random_input_len"),
    ("random output length", "random_output_len"), ("random range", "random_range_ratio"),
)  # fmt: skip
_LARGEST_DOCUMENT = 1 << 28
_NEEDED = ("completed", "duration")
_LONGEST_S = 9e9
_LOAD = (
    "backend", "dataset_name", "request_rate", "max_concurrency", "random_input_len", "random_output_len",
    "random_range_ratio", "sharegpt_output_len",
)  # fmt: skip


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``serving_results`` from one file; ``also`` its ``requests`` and ``serving_metrics``.

    The file holds a result a line, or one document over several lines.

    Durations are seconds in the file and latencies milliseconds. ``Infinity`` as request rate is no number
    and left out. A damaged line is refused. Requests and metrics are those of lines with per-request lists
    (``--output-details``), one repeat a line; the load is what the line says of it.
    """
    name = source_file or path.name
    rows: list[dict[str, Any]] = []
    refusals: list[Refusal] = []
    requests = 0
    loads: dict[int, str] = {}
    with _lines(path) as stream:
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


@contextmanager
def _lines(path: Path) -> Iterator[Iterable[bytes]]:
    """Lines of the file; one document that is written over several lines is one line."""
    with path.open("rb") as stream:
        first = stream.readline()
        if first.strip() not in (b"{", b"["):
            stream.seek(0)
            yield stream
            return
        data = first + stream.read(_LARGEST_DOCUMENT)
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        yield data.splitlines(keepends=True)
        return
    yield [orjson.dumps(one) for one in (document if isinstance(document, list) else [document])]


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
    document = json.loads(raw.decode("utf-8"))
    if not isinstance(document, dict):
        raise ValueError("a result is an object")
    run: dict[str, Any] = _of_evalscope(document) if EVALSCOPE in document else document
    if missing := [key for key in _NEEDED if not is_number(run.get(key))]:
        raise ValueError(f"no number {', '.join(missing)}: not a result of the serving benchmark")
    if not 0 <= run["duration"] < _LONGEST_S:
        raise ValueError(f"duration is {run['duration']} s")
    if not 0 <= run["completed"] < LARGEST:
        raise ValueError(f"completed is {run['completed']}")
    if not all(isinstance(run.get(key), list | None) for key in ("input_lens",)):
        raise ValueError("input_lens is no list")
    return run


def _of_evalscope(run: dict[str, Any]) -> dict[str, Any]:
    """A summary of evalscope under the names that the other clients have for the same."""
    found = {name: run[said] for said, name in _EVALSCOPE.items() if said in run}
    for said, name in _EVALSCOPE_SECONDS.items():
        if is_number(run.get(said)):
            found[name] = run[said] * 1000
    return {"backend": "evalscope", **found}


def configuration(run: Mapping[str, Any]) -> dict[str, str]:
    """What the client was told, under one name each; the mean lengths of requests are in tokens."""
    found = {name: str(run[key]) for name, key in _CONFIGURED if run.get(key) is not None}
    completed = run.get("completed")
    for name, key in (("input length", "total_input_tokens"), ("output length", "total_output_tokens")):
        if is_number(run.get(key)) and is_number(completed) and completed:
            found[name] = f"{run[key] / completed:.1f}"
    return found


def _row(run: dict[str, Any]) -> dict[str, Any]:
    texts = {key: run[key] for key in ("backend", "dataset_name") if isinstance(run.get(key), str)}
    limit = run.get("max_concurrency")
    return {
        **texts,
        "max_concurrency": limit if isinstance(limit, int) and is_number(limit) else None,
        "completed": int(run["completed"]),
        "duration_ns": round(run["duration"] * 1e9),
        "configuration": sorted(configuration(run).items()),
        "metrics": {key: float(value) for key, value in run.items() if is_number(value)},
    }
