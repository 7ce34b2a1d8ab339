"""Launch times of a timeline carried over to the kernel rows of a CSV of the same run."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tasks.read.timeline import NEGATIVE_LATENCY

TOLERANCE_NS = 1000
"""Two exports of one run write the same start, or one that differs in the last decimal."""

IntArray = npt.NDArray[np.int64]


def with_launches(kernels: pa.Table, timeline: pa.Table) -> tuple[pa.Table, dict[str, Any]]:
    """``kernels`` with host enqueue and launch latency from ``timeline``, and how many were linked.

    A kernel and a device task belong together by name and start (± 1 µs), and by stream where both say it. A
    kernel without a task, or a task without a launch, stays null. Negative latencies are kept and flagged.
    """
    launched = timeline.filter(pc.is_valid(timeline.column("host_enqueue_ns")))
    at = _match(kernels, launched)
    host = launched.column("host_enqueue_ns").combine_chunks().take(pa.array(at, mask=at < 0))
    latency = pc.subtract(kernels.column("start_ns").combine_chunks(), host)
    negative = pc.fill_null(pc.less(latency, 0), False).to_numpy(zero_copy_only=False)
    linked = kernels
    for name, values in (
        ("host_enqueue_ns", host),
        ("launch_latency_ns", latency),
        ("flags", _flagged(kernels, negative)),
    ):
        index = linked.column_names.index(name)
        linked = linked.set_column(index, kernels.schema.field(name), values)
    known = pc.drop_null(latency).to_numpy(zero_copy_only=False)
    return linked, {
        "linked": len(known),
        "not_linked": kernels.num_rows - len(known),
        "negative_latencies": int(negative.sum()),
        "median_latency_ns": int(np.median(known)) if len(known) else None,
    }


def _match(kernels: pa.Table, tasks: pa.Table) -> IntArray:
    """Row of ``tasks`` for every kernel, -1 where there is none."""
    count = kernels.num_rows
    none = np.full(count, -1, dtype=np.int64)
    if not tasks.num_rows or not count:
        return none
    names = pc.unique(tasks.column("name"))
    code, of_task = (_codes(table.column("name"), names) for table in (kernels, tasks))
    start, of_task_start = _integers(kernels.column("start_ns")), _integers(tasks.column("start_ns"))
    base = int(of_task_start.min())
    width = int(of_task_start.max()) - base + 4 * TOLERANCE_NS
    key_of_task = of_task * width + (of_task_start - base)
    order = np.argsort(key_of_task, kind="stable")
    inside = (start >= base - TOLERANCE_NS) & (start - base <= width - 3 * TOLERANCE_NS) & (code >= 0)
    wanted = np.where(inside, code * width + (start - base), -4 * TOLERANCE_NS)
    place = np.searchsorted(key_of_task[order], wanted)
    stream, of_task_stream = _integers(kernels.column("stream_id")), _integers(tasks.column("stream_id"))
    best, distance = none, np.full(count, TOLERANCE_NS + 1, dtype=np.int64)
    for neighbour in (-1, 0, 1):
        candidate = order[np.clip(place + neighbour, 0, len(order) - 1)]
        gap = np.abs(key_of_task[candidate] - wanted)
        other = of_task_stream[candidate]
        same_stream = (stream < 0) | (other < 0) | (stream == other)
        better = inside & same_stream & (gap < distance)
        best, distance = np.where(better, candidate, best), np.where(better, gap, distance)
    return best


def _codes(names: pa.ChunkedArray, known: pa.Array) -> IntArray:
    codes: IntArray = pc.fill_null(pc.index_in(names, value_set=known), -1).to_numpy().astype(np.int64)
    return codes


def _integers(values: pa.ChunkedArray) -> IntArray:
    numbers: IntArray = pc.fill_null(values, -1).to_numpy().astype(np.int64)
    return numbers


def _flagged(kernels: pa.Table, negative: npt.NDArray[np.bool_]) -> pa.Array:
    flags = kernels.column("flags").combine_chunks()
    marked = pa.array([None, [NEGATIVE_LATENCY]], type=flags.type).take(pa.array(negative.astype(np.int8)))
    both = negative & flags.is_valid().to_numpy(zero_copy_only=False)
    merged = [[*known, NEGATIVE_LATENCY] for known in flags.filter(pa.array(both)).to_pylist()]
    place = np.arange(len(flags), dtype=np.int64)
    place[both] = len(flags) + np.arange(len(merged))
    every = pa.concat_arrays([pc.coalesce(flags, marked), pa.array(merged, type=flags.type)])
    return every.take(pa.array(place))
