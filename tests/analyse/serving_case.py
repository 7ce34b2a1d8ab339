"""Contract tables of small invented runs of experiment E: every number follows from what a test states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tilewatch.data_contracts import contract, from_rows
from tilewatch.tasks.analyse.comparison.serving_values import ServingTables

Row = dict[str, Any]
LOAD: Row = {
    "load_id": "load-64-16", "input_tokens": 64, "output_tokens": 16, "prompts": 8, "max_concurrency": 4,
    "request_rate": None,
}  # fmt: skip
METHOD: Row = {"method_hash": "method-1", "plan_hash": "plan-1", "evidence": "measured"}
DEVICE: Row = {"device": "cpu-0", "device_class": "Invented CPU, 2 cores", "agent": "cpu", "host": "h"}


def neutral(table: str, row: Mapping[str, Any]) -> Row:
    """``row`` with a neutral value in every required column that it leaves out."""
    filled: Row = {}
    for column in contract(table).columns:
        if column.required and column.name not in row:
            kind = column.type
            text = pa.types.is_string(kind)
            filled[column.name] = "x" if text else [] if pa.types.is_nested(kind) else 0
    return {**filled, **row}


def launch(arm: str, index: int, **fields: Any) -> Row:
    """One complete timing launch of ``arm``."""
    row: Row = {
        "capture_id": f"{fields.get('build', 'cpu')}-{arm}-{index}", "run_id": "run-e", "build": "cpu",
        "build_id": f"id-{fields.get('build', 'cpu')}", "experiment": "E", "arm": arm, "process_index": index,
        "role": "timing", "block": index, "lease_id": "lease-1", "status": "complete", "arm_proved": True,
        "server_kind": "reference", "server_pid": 4000 + index, "started_ns": index, "ended_ns": index + 1,
        "ready_after_ns": 900_000_000, "client": "builtin", "repeats": 1, "proof": [f"{arm} as asked for"],
        **LOAD, **METHOD, **DEVICE, **fields,
    }  # fmt: skip
    return neutral("launches", row)


def failed(arm: str, index: int, stage: str, reason: str, **fields: Any) -> Row:
    """A launch that failed at ``stage``."""
    broken: Row = {"status": "failed", "failure_stage": stage, "failure_reason": reason, "arm_proved": None}
    return launch(arm, index, **broken, last_log_lines="loading\nkilled", **fields)


def requests_of(row: Row, ttft_ns: Sequence[int], tpot_ns: Sequence[int]) -> list[Row]:
    """Requests of one launch, one a pair of times."""
    own = {k: row[k] for k in ("capture_id", "run_id", "build", "build_id", "experiment", "arm", "evidence")}
    return [
        neutral(
            "requests",
            {
                **own, "process_index": row["process_index"], "role": row["role"], "repeat_index": 0,
                "request_index": place, "ttft_ns": int(ttft), "tpot_ns": int(tpot),
                "e2e_ns": int(ttft + 15 * tpot), "input_tokens": 64, "output_tokens": 16, "ok": True,
            },
        )
        for place, (ttft, tpot) in enumerate(zip(ttft_ns, tpot_ns, strict=True))
    ]  # fmt: skip


def metrics_of(row: Row, values: Mapping[str, float]) -> list[Row]:
    """Summaries of one launch: totals of throughput, means of times."""
    own = {k: row[k] for k in ("capture_id", "run_id", "build", "build_id", "experiment", "arm", "evidence")}
    return [
        neutral(
            "serving_metrics",
            {
                **own, "process_index": row["process_index"], "role": row["role"],
                "launch_status": "complete", "load_id": row["load_id"], "repeat_index": 0, "metric": metric,
                "statistic": "mean" if metric.endswith("_ns") else "total", "value": value,
                "request_count": 8,
            },
        )
        for metric, value in values.items()
    ]  # fmt: skip


def tables(
    launches: Sequence[Row], requests: Sequence[Row] = (), metrics: Sequence[Row] = ()
) -> ServingTables:
    """The three tables from rows."""
    return ServingTables(
        from_rows("launches", launches),
        from_rows("requests", requests),
        from_rows("serving_metrics", metrics),
    )


def arm_run(
    tpot_ms: Mapping[str, Sequence[float]], launches: Mapping[str, Mapping[str, Any]] | None = None
) -> ServingTables:
    """A run by arm: the TPOT of each launch in ms; TTFT is five times that, throughput four over it."""
    rows, requests, metrics = [], [], []
    for arm, values in tpot_ms.items():
        for index, value in enumerate(values):
            row = launch(arm, index, **(launches or {}).get(arm, {}))
            rows.append(row)
            spread = np.array([0.9, 1.0, 1.0, 1.1]) * value * 1e6
            requests += requests_of(row, spread * 5, spread)
            metrics += metrics_of(row, {"output_token_per_s": 4000 / value, "request_per_s": 250 / value})
    return tables(rows, requests, metrics)
