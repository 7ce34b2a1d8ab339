"""``results.jsonl`` of a launch: one line a repeat, in the keys of SGLang's serving benchmark.

Either client writes it (definitions: ``tasks.measure.serving.metrics``): per-request times in s, the summary
in ms. SGLang's lists hold no end-to-end time; it is then TTFT plus the gaps, which leaves out the time from
the last token to the end of the stream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from tilewatch.data_contracts import from_rows, schema
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.quarantine import Refusal, refused_rows

LISTS = ("input_lens", "output_lens", "ttfts", "itls", "errors")
LATENCIES = {"ttft_ns": "ttft", "tpot_ns": "tpot", "itl_ns": "itl", "e2e_ns": "e2e_latency"}
STATISTICS = ("mean", "median", "std", "p90", "p95", "p99")
THROUGHPUTS = {"output_token_per_s": "output_throughput", "request_per_s": "request_throughput"}
OF_SEVERAL_TOKENS = ("tpot_ns", "itl_ns")
NS_PER_S, NS_PER_MS = 1e9, 1e6
LARGEST = 1 << 63
Line = Mapping[str, Any]


@dataclass(frozen=True)
class Results:
    """Tables of one file; ``facts`` holds ``accept_length``, the mean over the repeats where they tell."""

    requests: pa.Table
    metrics: pa.Table
    quarantine: pa.Table
    facts: dict[str, Any]


def read_results(path: Path, name: str, origin: Origin, role: str, load_id: str) -> Results:
    """``requests`` and ``serving_metrics`` of one launch; empty where there is no file.

    A bad line is refused. Infinity, SGLang's request rate where there is none, is read as null.
    """
    requests, metrics = [schema("requests").empty_table()], [schema("serving_metrics").empty_table()]
    refusals: list[Refusal] = []
    accepted: list[float] = []
    lines = path.read_bytes().splitlines() if path.is_file() else []
    for index, raw in enumerate(lines):
        try:
            line = _line(raw)
            place = {"repeat_index": index, "source_file": name, "source_line": index + 1}
            of_line = _requests(origin, role, line, place)
            of_metrics = _metrics(origin, role, load_id, line, place)
        except (ValueError, TypeError, KeyError, OverflowError, pa.ArrowException) as error:
            text = raw[:4000].decode("utf-8", "backslashreplace")
            refusals.append(Refusal(name, index + 1, "serving_result", str(error), raw_text=text))
            continue
        requests.append(of_line)
        metrics.append(of_metrics)
        if is_number(line.get("accept_length")):
            accepted.append(line["accept_length"])
    facts = {"accept_length": float(np.mean(accepted)) if accepted else None}
    quarantine = refused_rows(origin, "requests", refusals)
    return Results(pa.concat_tables(requests), pa.concat_tables(metrics), quarantine, facts)


def _line(raw: bytes) -> Line:
    line = orjson.loads(raw.replace(b": Infinity", b": null"))
    if not isinstance(line, dict):
        raise ValueError("a result is an object")
    if missing := [key for key in LISTS if not isinstance(line.get(key), list)]:
        raise ValueError(f"no list {', '.join(missing)}: written without --output-details?")
    sizes = {key: len(line[key]) for key in LISTS}
    if len(set(sizes.values())) != 1:
        raise ValueError(f"lists of different lengths: {sizes}")
    if not is_number(line.get("completed")):
        raise ValueError("no number completed")
    return line


def _requests(origin: Origin, role: str, line: Line, place: Mapping[str, Any]) -> pa.Table:
    """One row a request, columns made as arrays."""
    count = len(line["errors"])
    ok = np.array([not error for error in line["errors"]], dtype=bool)
    tokens = np.array(line["output_lens"], dtype=np.int64)
    ttft_s = np.array(line["ttfts"], dtype=np.float64)
    gaps = pa.array(line["itls"], pa.list_(pa.float64()))
    e2e_s = np.array(line.get("latencies") or _ends(ttft_s, gaps), dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot_s = (e2e_s - ttft_s) / (tokens - 1)
    gap_ns = pa.array(np.rint(gaps.values.to_numpy() * NS_PER_S).astype(np.int64))
    columns = {
        **{key: [value] * count for key, value in {**origin.columns(), "role": role, **place}.items()},
        "request_index": np.arange(count),
        "ttft_ns": _ns(ttft_s, ttft_s > 0),
        "tpot_ns": _ns(tpot_s, ok & (tokens > 1)),
        "e2e_ns": _ns(e2e_s, ok),
        "itl_ns": pa.ListArray.from_arrays(gaps.offsets, gap_ns),
        "input_tokens": line["input_lens"],
        "output_tokens": tokens,
        "ok": ok,
        "error": [error or None for error in line["errors"]],
    }
    spec = schema("requests")
    return pa.table([pa.array(columns[f.name], f.type) for f in spec], schema=spec)


def _ends(ttft_s: npt.NDArray[np.float64], gaps: pa.ListArray) -> npt.NDArray[np.float64]:
    """TTFT plus the gaps of each request."""
    sums = np.concatenate([[0.0], np.cumsum(gaps.values.to_numpy())])
    offsets = gaps.offsets.to_numpy()
    ends: npt.NDArray[np.float64] = ttft_s + sums[offsets[1:]] - sums[offsets[:-1]]
    return ends


def _ns(values_s: npt.NDArray[np.float64], known: npt.NDArray[np.bool_]) -> pa.Array:
    rounded = np.rint(np.where(known, values_s, 0.0) * NS_PER_S).astype(np.int64)
    return pa.array(rounded, mask=~known)


def _metrics(origin: Origin, role: str, load_id: str, line: Line, place: Mapping[str, Any]) -> pa.Table:
    """One row a metric and statistic of the summary; none where no request had what it is made of."""
    several = max((n for n, e in zip(line["output_lens"], line["errors"], strict=True) if not e), default=0)
    found: list[tuple[str, str, float]] = []
    for metric, key in LATENCIES.items():
        if several > 1 or metric not in OF_SEVERAL_TOKENS:
            values = [(s, line[f"{s}_{key}_ms"]) for s in STATISTICS]
            found += [(metric, s, value * NS_PER_MS) for s, value in values if is_number(value)]
    found += [(m, "total", line[k]) for m, k in THROUGHPUTS.items() if is_number(line[k])]
    of_launch = {**origin.columns(), "role": role, "launch_status": "complete", "load_id": load_id, **place}
    rows = [
        {**of_launch, "metric": metric, "statistic": statistic, "value": value}
        for metric, statistic, value in found
        if line["completed"]
    ]
    return from_rows("serving_metrics", [{**row, "request_count": int(line["completed"])} for row in rows])


def is_number(value: Any) -> bool:
    """Whether it is a finite number that a table can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < LARGEST if isinstance(value, int) else math.isfinite(value)
