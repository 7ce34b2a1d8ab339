"""communication.json of torch_npu and cluster_communication.json of msprof-analyze: one row an operator.

Times in these files are milliseconds, except the start, which is microseconds as a double: its last 250 ns
are not exact. A cluster file has one level more, the rank.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.cells import ns_from_microseconds

_TIMES = {
    "elapse_ns": "Elapse Time(ms)",
    "transit_ns": "Transit Time(ms)",
    "wait_ns": "Wait Time(ms)",
    "synchronization_ns": "Synchronization Time(ms)",
    "idle_ns": "Idle Time(ms)",
}
_KINDS = ("p2p", "collective")
_STEP = re.compile(r"step(\d*)")


@dataclass(frozen=True)
class _Entry:
    step: str
    kind: str
    operator: str
    rank: str | None
    body: Any


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``communications`` from one file; totals over all operators are left out.

    ``source_line`` is 1: the file has no lines. A damaged operator is refused and the rest kept.
    """
    name = source_file or path.name
    refusals: list[Refusal] = []
    rows: list[dict[str, Any]] = []
    for entry in _entries(path, name, refusals):
        try:
            row = _row(entry)
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            place = f"{entry.step}/{entry.kind}/{entry.operator}"
            reason = f"{place}: {error}"
            refusals.append(
                Refusal(name, 1, "communication", reason, place, raw_text=repr(entry.body)[:4000])
            )
            continue
        rows.append(
            {**origin.columns(), **row, "source_file": name, "row_index": len(rows), "source_line": 1}
        )
    table: pa.Table = from_rows("communications", rows)
    facts = {"rows": len(rows), "refused": len(refusals)}
    return ReadResult(table, refused_rows(origin, "communications", refusals), facts)


def _entries(path: Path, name: str, refusals: list[Refusal]) -> Iterator[_Entry]:
    data = path.read_bytes()
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        rule = "json" if data else "empty_file"
        raw = data[:4000].decode("utf-8", "backslashreplace")
        refusals.append(Refusal(name, None, rule, f"not JSON: {error}", raw_text=raw))
        return
    found = False
    for outer, level in _items(document):
        for inner, operators in _items(level):
            step, kind = (inner, outer) if outer in _KINDS else (outer, inner)
            if kind not in _KINDS or not _STEP.match(step):
                continue
            found = True
            for operator, body in _items(operators):
                if operator == "Total Op Info":
                    continue
                ranks = [(None, body)] if "Communication Time Info" in _keys(body) else _items(body)
                for rank, value in ranks:
                    yield _Entry(step, kind, operator, rank, value)
    if not found and document != {}:
        reason = "no step with p2p or collective operators in it"
        refusals.append(Refusal(name, None, "communication", reason, raw_text=data[:4000].decode("utf-8")))


def _row(entry: _Entry) -> dict[str, Any]:
    times = entry.body["Communication Time Info"] if "Communication Time Info" in _keys(entry.body) else None
    if not isinstance(times, dict):
        raise ValueError("no Communication Time Info")
    operator, _, group = entry.operator.partition("@")
    step = _STEP.match(entry.step)
    bandwidth = dict(_items(entry.body.get("Communication Bandwidth Info")))
    start = times.get("Start Timestamp(us)")
    return {
        "step_id": int(step[1]) if step and step[1] else None,
        "kind": entry.kind,
        "name": operator,
        "group_id": group or None,
        "rank": int(entry.rank) if entry.rank is not None else None,
        "start_ns": None if start is None else ns_from_microseconds(str(start)),
        **{column: _ns_from_ms(times.get(key), key, column == "elapse_ns") for column, key in _TIMES.items()},
        "transit_size_mb": _positive(bandwidth, "Transit Size(MB)"),
        "bandwidth_gb_s": _positive(bandwidth, "Bandwidth(GB/s)"),
    }


def _ns_from_ms(value: Any, key: str, required: bool) -> int | None:
    if value is None and not required:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{key}: expected milliseconds, found {value!r}")
    if required and value < 0:
        raise ValueError(f"{key}: negative, {value!r}")
    return round(value * 1_000_000)


def _positive(bandwidth: dict[str, Any], key: str) -> dict[str, float] | None:
    """Value by transport, where a transport moved anything."""
    values = {name: info.get(key) for name, info in bandwidth.items() if isinstance(info, dict)}
    return {n: float(v) for n, v in values.items() if isinstance(v, int | float) and v > 0} or None


def _items(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _keys(value: Any) -> frozenset[str]:
    return frozenset(value) if isinstance(value, dict) else frozenset()
