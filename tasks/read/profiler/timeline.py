"""trace_view.json and msprof_*.json, streamed: kernels with host enqueue time and latency, other tasks.

Host enqueue is the start of the HostToDevice flow whose end stands at the task. Host and device clocks are
aligned by interpolation, so a latency may come out negative by some microseconds: it is kept and flagged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import schema
from tilewatch.tasks.read.kernels.kernel_categories import categories
from tilewatch.tasks.read.kernels.task_types import KERNEL_TYPES
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.json_events import event_batches
from tilewatch.tasks.read.profiler.step_marks import step_rows, with_profiler_steps
from tilewatch.tasks.read.profiler.timeline_events import TASK_COLUMNS, IntArray, TimelineEvents
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.constants import Constants

NEGATIVE_LATENCY = "negative_launch_latency"
NO_SHAPES = "no_shapes"

_BATCH_ROWS = 20_000
_NO_TIME = np.iinfo(np.int64).min
_FLAGS = pa.array([[NO_SHAPES], [NO_SHAPES, NEGATIVE_LATENCY]], type=pa.list_(pa.string()))


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``kernels`` from one timeline: the device tasks that are kernels, collectives as a whole.

    ``op_type`` and shapes are null, since a timeline does not say them (flag ``no_shapes``); ``source_line``
    is the order of the task, since the file has no lines. ``also`` holds the ``device_tasks`` that are no
    kernels (waits, records, copies, parts of collectives), and the ``stage_steps`` that were marked.
    """
    name = source_file or path.name
    results = list(timeline_batches(path, origin, name))
    table = pa.concat_tables([schema("kernels").empty_table(), *(result.table for result in results)])
    others = [result.also["device_tasks"] for result in results if result.also]
    also = {"device_tasks": pa.concat_tables(others)} if sum(t.num_rows for t in others) else {}
    facts = dict(results[-1].facts)
    marks = facts.pop("marks")
    steps = step_rows(marks, origin, name, bounds_kernels=False)
    if steps.num_rows:
        also["stage_steps"] = steps
    else:
        table = with_profiler_steps(table, marks)
    return ReadResult(table, results[-1].quarantine, facts | {"kernels": table.num_rows}, also)


def timeline_batches(path: Path, origin: Origin, source_file: str | None = None) -> Iterator[ReadResult]:
    """A timeline as results of bounded size; the last one, without rows, carries quarantine and facts.

    Facts: events, host events, device tasks, linked tasks, negative latencies, median latency, processes, and
    the marks of steps.
    """
    name = source_file or path.name
    events = TimelineEvents()
    refusals: list[Refusal] = []
    for batch in event_batches(path, name):
        refusals += batch.refusals + events.add(batch, name)
    columns = {key: events.tasks.take(key) for key in TASK_COLUMNS}
    host = _host_times(events, columns["lane"], columns["start"])
    constants = Constants(origin, name)
    texts = (list(events.names.values), list(events.types.values))
    for first in range(0, len(host), _BATCH_ROWS):
        part = slice(first, first + _BATCH_ROWS)
        tasks = {key: column[part].astype(np.int64) for key, column in columns.items()}
        columns_of = _columns(tasks, host[part], texts, constants, first)
        kernel = _is_kernel(columns_of["task_type"])
        also = {"device_tasks": _device_tasks(columns_of).filter(pc.invert(kernel))}
        yield ReadResult(_kernels(columns_of).filter(kernel), schema("quarantine").empty_table(), also=also)
    facts = _facts(events, columns["start"], host) | {"refused": len(refusals), "marks": events.marks}
    yield ReadResult(schema("kernels").empty_table(), refused_rows(origin, "kernels", refusals), facts)


def _host_times(events: TimelineEvents, lane: npt.NDArray[Any], start: IntArray) -> IntArray:
    """Host enqueue time of every task, by the flow that ends on its lane at its start."""
    flow_start, time_start = events.starts.take("flow"), events.starts.take("time")
    order = np.argsort(flow_start, kind="stable")
    flow_start, time_start = flow_start[order], time_start[order]
    host = np.full(len(start), _NO_TIME, dtype=np.int64)
    end_flow, end_lane, end_time = (events.ends.take(key) for key in ("flow", "lane", "time"))
    for one in np.unique(lane):
        tasks, ends = np.flatnonzero(lane == one), np.flatnonzero(end_lane == one)
        ends = ends[np.argsort(end_time[ends], kind="stable")]
        at, found = _find(end_time[ends], start[tasks])
        flow = end_flow[ends][at]
        at, started = _find(flow_start, flow)
        host[tasks[found][started]] = time_start[at]
    return host


def _find(known: IntArray, wanted: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Where the wanted values that occur stand first in the sorted ``known``, and a mask of those that do."""
    at = np.searchsorted(known, wanted)
    inside = at < len(known)
    found = inside.copy()
    found[inside] = known[at[inside]] == wanted[inside]
    return at[found], found


def _columns(
    part: dict[str, npt.NDArray[Any]],
    host: IntArray,
    texts: tuple[list[str], list[str | None]],
    constants: Constants,
    first: int,
) -> dict[str, pa.Array]:
    """Columns of device tasks under the names that kernels and device tasks have for them."""
    rows = len(host)
    linked = host != _NO_TIME
    latency = np.where(linked, part["start"] - np.where(linked, host, 0), 0)
    columns: dict[str, pa.Array] = constants.columns(rows)
    columns["kernel_index"] = columns["row_index"] = pa.array(np.arange(first, first + rows, dtype=np.int64))
    columns["source_line"] = pa.array(np.arange(first + 1, first + rows + 1, dtype=np.int64))
    columns["name"] = pa.array(texts[0], type=pa.string()).take(pa.array(part["name"]))
    columns["task_type"] = pa.array(texts[1], type=pa.string()).take(pa.array(part["type"]))
    columns["start_ns"] = pa.array(part["start"])
    columns["duration_ns"] = pa.array(part["duration"])
    columns["end_ns"] = pa.array(part["start"] + part["duration"])
    columns["host_enqueue_ns"] = pa.array(host, mask=~linked)
    columns["launch_latency_ns"] = pa.array(latency, mask=~linked)
    columns["stream_id"] = pa.array(part["stream"], mask=part["stream"] < 0)
    columns["task_id"] = pa.array(part["task"], mask=part["task"] < 0)
    columns["block_dim"] = pa.array(part["block"], mask=part["block"] < 1)
    columns["flags"] = _FLAGS.take(pa.array((latency < 0).astype(np.int8)))
    return columns


def _is_kernel(task_type: pa.Array) -> pa.Array:
    """A task without a type stands on a device track that has kernels alone."""
    return pc.or_(pc.is_null(task_type), pc.is_in(task_type, value_set=pa.array(KERNEL_TYPES)))


def _kernels(columns: dict[str, pa.Array]) -> pa.Table:
    rows = len(columns["name"])
    unknown = np.full(rows, -1, dtype=np.int64)
    category = categories(pa.nulls(rows, pa.string()), columns["name"], unknown, unknown)
    return _table("kernels", columns | {"category": category})


def _device_tasks(columns: dict[str, pa.Array]) -> pa.Table:
    return _table("device_tasks", columns)


def _table(name: str, columns: dict[str, pa.Array]) -> pa.Table:
    spec, rows = schema(name), len(columns["name"])
    arrays = [columns[f.name] if f.name in columns else pa.nulls(rows, f.type) for f in spec]
    return pa.Table.from_arrays(arrays, schema=spec)


def _facts(events: TimelineEvents, start: IntArray, host: IntArray) -> dict[str, Any]:
    latency = (start - host)[host != _NO_TIME]
    return {
        "events": events.event_count,
        "host_events": events.host_event_count,
        "rows": len(start),
        "linked": len(latency),
        "negative_latencies": int((latency < 0).sum()),
        "median_latency_ns": int(np.median(latency)) if len(latency) else None,
        "least_latency_ns": int(latency.min()) if len(latency) else None,
        "processes": sorted(set(events.processes.values())),
    }
