"""Chrome trace of torch's profiler → ``kernels`` rows: the operators that a device would run as kernels.

Format: ``traceEvents`` of Kineto, complete events (``ph`` X) of category ``cpu_op`` with ``Input Dims`` and
``Input type``, and ``user_annotation`` ranges ``point:<point_id>``; ``ts`` and ``dur`` in microseconds with
three decimals, from ``baseTimeNanoseconds``. Operators inside such an operator are its host code, no kernels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_contracts import conform, schema
from tasks.read.cells import BoolArray, typed
from tasks.read.layout import Kind
from tasks.read.origin import Origin
from tasks.read.quarantine import Refusal, refused_rows
from tasks.read.result import ReadResult

RANGE_PREFIX = "point:"
WEIGHT_INPUT = 1
CATEGORIES = {
    "npu::npu_dynamic_quant": "quant",
    "npu::npu_quant_matmul": "dense",
    "npu::npu_grouped_matmul": "expert",
    "aten::mm": "dense",
}
"""Operators that stand for one kernel each, with their cost category."""

COUNT_MISMATCH = "kernel_count_mismatch"

_DTYPES = {
    "signed char": "int8",
    "int": "int32",
    "long int": "int64",
    "float": "float32",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "float16",
}
_NOT_TENSORS = ("", "Scalar", "ScalarList")

IntArray = npt.NDArray[np.int64]
Event = Mapping[str, Any]


@dataclass(frozen=True)
class Calls:
    """What the profiled calls of one point must have left: kernels by operator, and the weight's format."""

    kernels: Mapping[str, int]
    weight_format: str | None


@dataclass(frozen=True)
class _Events:
    """Complete events of one thread in order of their start; ``ordinals`` count from 1 in ``traceEvents``."""

    events: list[Event]
    ordinals: IntArray
    start_ns: IntArray
    end_ns: IntArray

    def take(self, chosen: IntArray) -> _Events:
        """The events at ``chosen``."""
        events = [self.events[i] for i in chosen]
        return _Events(events, self.ordinals[chosen], self.start_ns[chosen], self.end_ns[chosen])


def read_torch_trace(path: Path, source_file: str, origin: Origin, calls: Mapping[str, Calls]) -> ReadResult:
    """``kernels`` rows of one trace, attributed to points by range and order and verified by count.

    ``calls`` says by point id what was called. A point whose count differs keeps its rows, flagged
    ``kernel_count_mismatch``, and the difference stands in quarantine. ``source_line`` is the place of the
    event in ``traceEvents``, from 1. An unreadable file gives no rows and one refusal.
    """
    try:
        document = json.loads(path.read_bytes(), parse_float=str)
        raw, base_ns = list(document["traceEvents"]), int(document.get("baseTimeNanoseconds", 0))
        if not all(isinstance(event, dict) for event in raw):
            raise TypeError("an event is no object")
    except (ValueError, KeyError, TypeError) as error:
        refusal = Refusal(source_file, None, "trace", f"not a Chrome trace: {type(error).__name__} {error}")
        return _result(origin, schema("kernels").empty_table(), [refusal])
    events, refusals = _complete_events(raw, base_ns, source_file)
    kernels = events.take(_outermost(events, [e["name"] in CATEGORIES for e in events.events]))
    ranges = events.take(np.flatnonzero([e["name"].startswith(RANGE_PREFIX) for e in events.events]))
    points = _attributed(kernels, ranges)
    differing = _differences(kernels, points, calls)
    refusals += [Refusal(source_file, None, "kernel_count", text, "point_id", p) for p, text in differing]
    table = _table(kernels, points, calls, {point for point, _ in differing})
    for name, value in {**origin.columns(), "source_file": source_file}.items():
        table = table.append_column(name, pa.repeat(pa.scalar(value), table.num_rows))
    return _result(origin, conform("kernels", table), refusals)


def _complete_events(raw: Iterable[Event], base_ns: int, source_file: str) -> tuple[_Events, list[Refusal]]:
    """Events that matter, on the thread of the ranges; those without a readable time are refused."""
    chosen = [
        (ordinal, event)
        for ordinal, event in enumerate(raw, start=1)
        if event.get("ph") == "X"
        and (event.get("name") in CATEGORIES or str(event.get("name")).startswith(RANGE_PREFIX))
    ]
    start, bad_start = typed(pa.array([str(e.get("ts")) for _, e in chosen], pa.string()), Kind.TIMESTAMP)
    spent, bad_spent = typed(pa.array([str(e.get("dur")) for _, e in chosen], pa.string()), Kind.DURATION)
    bad = bad_start | bad_spent | _absent(start) | _absent(spent)
    refusals = [
        Refusal(source_file, chosen[i][0], "time", "ts or dur is no time", raw_text=json.dumps(chosen[i][1]))
        for i in np.flatnonzero(bad)
    ]
    good = np.flatnonzero(~bad)
    start_ns = base_ns + start.take(pa.array(good)).to_numpy(zero_copy_only=False).astype(np.int64)
    end_ns = start_ns + spent.take(pa.array(good)).to_numpy(zero_copy_only=False).astype(np.int64)
    events = _Events(
        [chosen[i][1] for i in good],
        np.array([chosen[i][0] for i in good], dtype=np.int64),
        start_ns,
        end_ns,
    )
    threads = {e.get("tid") for e in events.events if e["name"].startswith(RANGE_PREFIX)}
    here = np.flatnonzero([e.get("tid") in threads for e in events.events])
    order = here[np.lexsort((-end_ns[here], start_ns[here]))] if len(here) else here
    return events.take(order), refusals


def _outermost(events: _Events, is_kernel: list[bool]) -> IntArray:
    """Places of the kernels that lie in no other kernel; events are in order of their start."""
    places = np.flatnonzero(is_kernel)
    ends = events.end_ns[places]
    before = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(ends)[:-1]))[: len(places)]
    return places[events.start_ns[places] >= before]


def _attributed(kernels: _Events, ranges: _Events) -> list[str | None]:
    """Point of every kernel: that of the range it lies in."""
    if not ranges.events:
        return [None] * len(kernels.events)
    place = np.searchsorted(ranges.start_ns, kernels.start_ns, side="right") - 1
    inside = (place >= 0) & (kernels.end_ns <= ranges.end_ns[place])
    names = [e["name"].removeprefix(RANGE_PREFIX) for e in ranges.events]
    return [names[p] if fits else None for p, fits in zip(place, inside, strict=True)]


def _differences(
    kernels: _Events, points: list[str | None], calls: Mapping[str, Calls]
) -> list[tuple[str, str]]:
    found: dict[tuple[str | None, str], int] = {}
    for point, event in zip(points, kernels.events, strict=True):
        found[point, event["name"]] = found.get((point, event["name"]), 0) + 1
    return [
        (
            point,
            f"{operator}: {expected.kernels.get(operator, 0)} calls left {found.get((point, operator), 0)}",
        )
        for point, expected in calls.items()
        for operator in CATEGORIES
        if expected.kernels.get(operator, 0) != found.get((point, operator), 0)
    ]


def _table(
    kernels: _Events, points: list[str | None], calls: Mapping[str, Calls], differing: set[str]
) -> pa.Table:
    names = [e["name"] for e in kernels.events]
    tensors = [tensor_inputs(e.get("args", {})) for e in kernels.events]
    formats = [calls[p].weight_format if p is not None and p in calls else None for p in points]
    return pa.table(
        {
            "kernel_index": pa.array(np.arange(len(names))),
            "point_id": pa.array(points, pa.string()),
            "name": pa.array(names, pa.string()),
            "op_type": pa.array(names, pa.string()),
            "task_type": pa.array(["CPU"] * len(names), pa.string()),
            "category": pa.array([CATEGORIES[name] for name in names], pa.string()),
            "start_ns": pa.array(kernels.start_ns),
            "duration_ns": pa.array(kernels.end_ns - kernels.start_ns),
            "input_shapes": pa.array([shapes for shapes, _ in tensors], pa.list_(pa.list_(pa.int64()))),
            "input_dtypes": pa.array([dtypes for _, dtypes in tensors], pa.list_(pa.string())),
            "input_formats": pa.array(
                [_formats(len(t[0] or ()), f) for t, f in zip(tensors, formats, strict=True)],
                pa.list_(pa.string()),
            ),
            "flags": pa.array(
                [[COUNT_MISMATCH] if p in differing else [] for p in points], pa.list_(pa.string())
            ),
            "source_line": pa.array(kernels.ordinals),
        }
    )


def tensor_inputs(arguments: Mapping[str, Any]) -> tuple[list[list[int]] | None, list[str | None] | None]:
    """Shapes and dtypes of the tensor inputs; lists are opened. The trace has no dtypes of listed tensors."""
    if "Input Dims" not in arguments or "Input type" not in arguments:
        return None, None
    shapes: list[list[int]] = []
    dtypes: list[str | None] = []
    for kind, extent in zip(arguments["Input type"], arguments["Input Dims"], strict=False):
        if kind in _NOT_TENSORS:
            continue
        listed = extent if kind == "TensorList" else [extent]
        shapes += listed
        dtypes += [_DTYPES.get(kind, kind) if kind != "TensorList" else None] * len(listed)
    return shapes, dtypes


def _formats(tensors: int, weight_format: str | None) -> list[str | None]:
    return [weight_format if i == WEIGHT_INPUT else "ND" for i in range(tensors)]


def _absent(values: pa.Array) -> BoolArray:
    mask: BoolArray = values.is_null().to_numpy(zero_copy_only=False)
    return mask


def _result(origin: Origin, table: pa.Table, refusals: list[Refusal]) -> ReadResult:
    return ReadResult(table, refused_rows(origin, "kernels", refusals))
