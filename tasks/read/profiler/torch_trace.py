"""Chrome trace of torch's profiler → ``kernels`` rows: the operators that a device would run as kernels.

Format: ``traceEvents`` of Kineto, complete events (``ph`` X) of category ``cpu_op`` with ``Input Dims`` and
``Input type``, and ``user_annotation`` ranges ``point:<point_id>``; ``ts`` and ``dur`` in microseconds with
three decimals, from ``baseTimeNanoseconds``. Operators inside such an operator are its host code, no kernels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tilewatch.data_contracts import conform, schema
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.cells import BoolArray, typed
from tilewatch.tasks.read.tabular.layout import Kind

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


def trace_events(document: Any) -> tuple[list[dict[str, Any]], int]:
    """Events of a parsed trace and the nanoseconds that their times count from.

    Raises ValueError, KeyError or TypeError where it is no trace of torch's profiler.
    """
    events, base_ns = list(document["traceEvents"]), int(document.get("baseTimeNanoseconds", 0))
    if not all(isinstance(event, dict) for event in events):
        raise TypeError("an event is no object")
    if not 0 <= base_ns < 1 << 62:
        raise ValueError(f"baseTimeNanoseconds is {base_ns}")
    return events, base_ns


def read_torch_trace(path: Path, source_file: str, origin: Origin, calls: Mapping[str, Calls]) -> ReadResult:
    """``kernels`` rows of one trace, attributed to points by range and order and verified by count.

    ``calls`` says by point id what was called. A point whose count differs keeps its rows, flagged
    ``kernel_count_mismatch``, and the difference stands in quarantine. ``source_line`` is the place of the
    event in ``traceEvents``, from 1. An unreadable file gives no rows and one refusal.
    """
    try:
        raw, base_ns = trace_events(json.loads(path.read_bytes(), parse_float=str))
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
    """Events that matter, on the thread of the ranges; those that cannot be read are refused."""
    chosen = [
        (ordinal, event)
        for ordinal, event in enumerate(raw, start=1)
        if event.get("ph") == "X"
        and isinstance(name := event.get("name"), str)
        and (name in CATEGORIES or name.startswith(RANGE_PREFIX))
    ]
    good, start_ns, end_ns, refusals = readable(source_file, chosen, base_ns)
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


def tensor_inputs(arguments: Any) -> tuple[list[list[int]] | None, list[str | None] | None]:
    """Shapes and dtypes of the tensor inputs; lists are opened. The trace has no dtypes of listed tensors.

    Raises ValueError where the arguments of the event are of another form.
    """
    if not isinstance(arguments, Mapping):
        raise ValueError("args is no object")
    if "Input Dims" not in arguments or "Input type" not in arguments:
        return None, None
    kinds, extents = arguments["Input type"], arguments["Input Dims"]
    if not (isinstance(kinds, list) and isinstance(extents, list) and all(isinstance(k, str) for k in kinds)):
        raise ValueError("Input type or Input Dims is no list")
    shapes: list[list[int]] = []
    dtypes: list[str | None] = []
    for kind, extent in zip(kinds, extents, strict=False):
        if kind in _NOT_TENSORS:
            continue
        listed = extent if kind == "TensorList" else [extent]
        if not (isinstance(listed, list) and all(_is_shape(shape) for shape in listed)):
            raise ValueError(f"Input Dims of a {kind} is {json.dumps(extent)[:80]}")
        shapes += listed
        dtypes += [_DTYPES.get(kind, kind) if kind != "TensorList" else None] * len(listed)
    return shapes, dtypes


def readable(
    source_file: str, chosen: Sequence[tuple[int, Event]], base_ns: int
) -> tuple[IntArray, IntArray, IntArray, list[Refusal]]:
    """Which of the chosen events can be read, when they start and end in ns; a refusal for each other one.

    ``chosen`` are events with their place in the file, ``base_ns`` is what their times count from.
    """
    start, bad_start = typed(pa.array([str(e.get("ts")) for _, e in chosen], pa.string()), Kind.TIMESTAMP)
    spent, bad_spent = typed(pa.array([str(e.get("dur")) for _, e in chosen], pa.string()), Kind.DURATION)
    untimed = bad_start | bad_spent | _absent(start) | _absent(spent)
    faults = [
        "ts or dur is no time" if bad else _fault(e) for bad, (_, e) in zip(untimed, chosen, strict=True)
    ]
    refusals = [
        Refusal(source_file, place, "trace_event", fault, raw_text=json.dumps(event))
        for fault, (place, event) in zip(faults, chosen, strict=True)
        if fault is not None
    ]
    good = np.flatnonzero([fault is None for fault in faults])
    start_ns = base_ns + start.take(pa.array(good)).to_numpy(zero_copy_only=False).astype(np.int64)
    end_ns = start_ns + spent.take(pa.array(good)).to_numpy(zero_copy_only=False).astype(np.int64)
    return good, start_ns, end_ns, refusals


def _fault(event: Event) -> str | None:
    """Why a complete event cannot stand for an operator; None where it can."""
    if not isinstance(event.get("name"), str):
        return "name is no text"
    try:
        tensor_inputs(event.get("args", {}))
    except ValueError as error:
        return str(error)
    return None


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(type(d) is int and abs(d) < 1 << 62 for d in value)


def _formats(tensors: int, weight_format: str | None) -> list[str | None]:
    return [weight_format if i == WEIGHT_INPUT else "ND" for i in range(tensors)]


def _absent(values: pa.Array) -> BoolArray:
    mask: BoolArray = values.is_null().to_numpy(zero_copy_only=False)
    return mask


def _result(origin: Origin, table: pa.Table, refusals: list[Refusal]) -> ReadResult:
    return ReadResult(table, refused_rows(origin, "kernels", refusals))
