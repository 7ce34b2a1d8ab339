"""Launch times of a timeline carried over to the kernel rows of a CSV of the same run."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.read.profiler.timeline import NEGATIVE_LATENCY

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
    """Row of ``tasks`` for every kernel, -1 where there is none.

    Tasks are sorted by name and start; the neighbours of the place where a kernel would stand are looked at.
    """
    best = np.full(kernels.num_rows, -1, dtype=np.int64)
    if not tasks.num_rows:
        return best
    names = pc.unique(tasks.column("name"))
    code, task_code = (_codes(table.column("name"), names) for table in (kernels, tasks))
    start, task_start = (_integers(table.column("start_ns")) for table in (kernels, tasks))
    stream, task_stream = (_integers(table.column("stream_id")) for table in (kernels, tasks))
    ranks = np.sort(task_start)
    key = task_code * (len(ranks) + 1) + np.searchsorted(ranks, task_start)
    order = np.argsort(key, kind="stable")
    place = np.searchsorted(key[order], code * (len(ranks) + 1) + np.searchsorted(ranks, start))
    timed = kernels.column("start_ns").is_valid().to_numpy()
    distance = np.full(kernels.num_rows, TOLERANCE_NS + 1, dtype=np.int64)
    for neighbour in (-1, 0, 1):
        task = order[np.clip(place + neighbour, 0, len(order) - 1)]
        gap = np.abs(task_start[task] - start)
        same_stream = (stream < 0) | (task_stream[task] < 0) | (stream == task_stream[task])
        better = timed & (task_code[task] == code) & same_stream & (gap < distance)
        best, distance = np.where(better, task, best), np.where(better, gap, distance)
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
