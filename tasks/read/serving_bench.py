"""Result lines of the SGLang serving benchmark client: one JSON object a run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from data_contracts import from_rows
from tasks.read.origin import Origin
from tasks.read.quarantine import Refusal, refused_rows
from tasks.read.result import ReadResult

_NEEDED = ("completed", "duration")


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``serving_results`` from one JSONL file; per-request lists are counted in the facts only.

    Durations are seconds in the file and latencies milliseconds. ``Infinity`` as request rate is no number
    and left out. A damaged line is refused.
    """
    name = source_file or path.name
    rows: list[dict[str, Any]] = []
    refusals: list[Refusal] = []
    requests = 0
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
            place = {"source_file": name, "row_index": len(rows), "source_line": line}
            rows.append({**origin.columns(), **_row(run), **place})
    if not rows and not refusals:
        refusals.append(Refusal(name, None, "empty_file", "the file has no lines"))
    facts = {"rows": len(rows), "refused": len(refusals), "detailed_requests": requests}
    return ReadResult(
        from_rows("serving_results", rows), refused_rows(origin, "serving_results", refusals), facts
    )


def _run(raw: bytes) -> dict[str, Any]:
    run = json.loads(raw.decode("utf-8"))
    if not isinstance(run, dict):
        raise ValueError("a result is an object")
    if missing := [key for key in _NEEDED if not _is_number(run.get(key))]:
        raise ValueError(f"no number {', '.join(missing)}: not a result of the serving benchmark")
    if run["duration"] < 0:
        raise ValueError("duration is negative")
    if not all(isinstance(run.get(key), list | None) for key in ("input_lens",)):
        raise ValueError("input_lens is no list")
    return run


def _row(run: dict[str, Any]) -> dict[str, Any]:
    texts = {key: run[key] for key in ("backend", "dataset_name") if isinstance(run.get(key), str)}
    limit = run.get("max_concurrency")
    return {
        **texts,
        "max_concurrency": limit if isinstance(limit, int) else None,
        "completed": int(run["completed"]),
        "duration_ns": round(run["duration"] * 1e9),
        "metrics": {key: float(value) for key, value in run.items() if _is_number(value)},
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
