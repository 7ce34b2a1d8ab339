"""Stage profiles of a serving server: Chrome traces of torch's profiler, one a stage, mostly gzipped.

Format: ``…-EXTEND.trace.json.gz`` and ``…-DECODE.trace.json.gz`` (also ``-prefill``, ``-decode``), complete
events (``ph`` X) of category ``cpu_op``, and ``user_annotation`` ranges: ``step[DECODE bs=4]`` around a step
and, where the server names its parts, ``<category>:<part>`` inside it. ``ts`` and ``dur`` are microseconds
with three decimals from ``baseTimeNanoseconds``. An operator inside another is its host code, no kernel.
"""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tilewatch.data_contracts import conform, schema
from tilewatch.tasks.read.kernels.kernel_categories import category_rules
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.step_marks import PREFIX, step_rows
from tilewatch.tasks.read.profiler.torch_trace import CATEGORIES, readable, tensor_inputs, trace_events
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult

LARGEST_BYTES = 1 << 30
"""A trace that unpacks to more is refused: the whole document is held in memory."""

OTHER = "other"
IntArray = npt.NDArray[np.int64]


def read(path: Path, origin: Origin, source_file: str | None = None) -> ReadResult:
    """Contract ``kernels`` of one stage profile, and ``also`` its ``stage_steps``.

    Kernels are the outermost operators of the threads that have steps; ``step_id`` is the step they start in,
    null outside of any. The category is that of the range around the operator, else of its name. A file that
    is no trace, or marks no step, gives no steps and a refusal.
    """
    name = source_file or path.name
    empty = ReadResult(schema("kernels").empty_table(), refused_rows(origin, "kernels", []))
    try:
        events, base_ns = _events(path)
    except (ValueError, KeyError, TypeError, OSError, EOFError, zlib.error) as error:
        refusal = Refusal(name, None, "trace", f"not a Chrome trace: {type(error).__name__} {error}")
        return ReadResult(empty.table, refused_rows(origin, "kernels", [refusal]))
    table, refusals = _complete(events, base_ns, name)
    steps = step_rows(
        zip(*(table.take("step")[k].tolist() for k in ("place", "name", "start", "end")), strict=True),
        origin, name, bounds_kernels=True,
    )  # fmt: skip
    if not steps.num_rows:
        refusals.append(Refusal(name, None, "no_steps", "no range step[…] marks the steps of the phase"))
        return ReadResult(empty.table, refused_rows(origin, "kernels", refusals), also={"stage_steps": steps})
    kernels = _kernels(table, steps, events, origin, name)
    facts = {"rows": kernels.num_rows, "steps": steps.num_rows, "refused": len(refusals)}
    return ReadResult(kernels, refused_rows(origin, "kernels", refusals), facts, {"stage_steps": steps})


def _events(path: Path) -> tuple[list[dict[str, Any]], int]:
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    with gzip.open(path) if packed else path.open("rb") as stream:
        data = stream.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        raise ValueError(f"more than {LARGEST_BYTES} bytes")
    document = json.loads(data, parse_float=str)
    return trace_events(document)


class _Events:
    """Complete events by kind (step, range, operator) as columns; ``place`` counts from 1 in the file."""

    def __init__(self, columns: dict[str, npt.NDArray[Any]]) -> None:
        self._columns = columns

    def take(self, kind: str) -> dict[str, npt.NDArray[Any]]:
        """Columns of one kind, sorted by thread, start and then the longer first."""
        rows = np.flatnonzero(self._columns["kind"] == kind)
        found = {key: column[rows] for key, column in self._columns.items()}
        order = np.lexsort((-found["end"], found["start"], found["thread"]))
        return {key: column[order] for key, column in found.items()}


def _kind(event: dict[str, Any]) -> str | None:
    if event.get("ph") != "X":
        return None
    name, category = str(event.get("name")), event.get("cat")
    if category == "cpu_op":
        return "operator"
    if category != "user_annotation":
        return None
    if name.startswith(PREFIX):
        return "step"
    return "range" if name.split(":", 1)[0] in category_rules().names and ":" in name else None


def _complete(events: list[dict[str, Any]], base_ns: int, name: str) -> tuple[_Events, list[Refusal]]:
    """Events that matter; those that cannot be read are refused."""
    chosen = [(place, event, kind) for place, event in enumerate(events, start=1) if (kind := _kind(event))]
    placed = [(place, event) for place, event, _ in chosen]
    good, start_ns, end_ns, refusals = readable(name, placed, base_ns)
    kept = [chosen[i] for i in good]
    columns = {
        "place": np.array([place for place, _, _ in kept], dtype=np.int64),
        "name": np.array([e["name"] for _, e, _ in kept], dtype=object),
        "kind": np.array([kind for _, _, kind in kept], dtype=object),
        "thread": np.array([f"{e.get('pid')}/{e.get('tid')}" for _, e, _ in kept], dtype=str),
        "start": start_ns,
        "end": end_ns,
    }
    return _Events(columns), refusals


def _kernels(
    table: _Events, steps: pa.Table, events: list[dict[str, Any]], origin: Origin, source_file: str
) -> pa.Table:
    marks, ranges, operators = (table.take(kind) for kind in ("step", "range", "operator"))
    here = np.isin(operators["thread"], marks["thread"])
    operators = {key: column[here] for key, column in operators.items()}
    outer = _outermost(operators)
    kernels = {key: column[outer] for key, column in operators.items()}
    step = _inside(kernels, steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy())
    order = np.argsort(ranges["start"], kind="stable")
    within = _inside(kernels, ranges["start"][order], ranges["end"][order])
    labels = np.array([str(text).split(":", 1)[0] for text in ranges["name"][order]], dtype=object)
    tensors = [tensor_inputs(events[place - 1].get("args", {})) for place in kernels["place"]]
    names = [str(text) for text in kernels["name"]]
    rows = len(names)
    columns = {
        **{key: pa.repeat(pa.scalar(value), rows) for key, value in origin.columns().items()},
        "source_file": pa.repeat(source_file, rows),
        "source_line": pa.array(kernels["place"]),
        "kernel_index": pa.array(np.arange(rows)),
        "name": pa.array(names, pa.string()),
        "op_type": pa.array(names, pa.string()),
        "task_type": pa.repeat("CPU", rows),
        "category": pa.array(
            [labels[w] if w >= 0 else CATEGORIES.get(n, OTHER) for w, n in zip(within, names, strict=True)],
            pa.string(),
        ),
        "start_ns": pa.array(kernels["start"]),
        "duration_ns": pa.array(kernels["end"] - kernels["start"]),
        "input_shapes": pa.array([shapes for shapes, _ in tensors], pa.list_(pa.list_(pa.int64()))),
        "input_dtypes": pa.array([dtypes for _, dtypes in tensors], pa.list_(pa.string())),
        "step_id": pa.array(step, mask=step < 0),
        "flags": pa.array([[]] * rows, pa.list_(pa.string())),
    }
    return conform("kernels", pa.table(columns))


def _outermost(operators: dict[str, npt.NDArray[Any]]) -> IntArray:
    """Places of the operators that lie in no other one of their thread."""
    found = [np.empty(0, dtype=np.int64)]
    for thread in np.unique(operators["thread"]):
        places = np.flatnonzero(operators["thread"] == thread)
        ends = np.maximum.accumulate(operators["end"][places])
        before = np.concatenate(([np.iinfo(np.int64).min], ends[:-1]))
        found.append(places[operators["start"][places] >= before])
    places = np.concatenate(found)
    return places[np.argsort(operators["start"][places], kind="stable")]


def _inside(kernels: dict[str, npt.NDArray[Any]], begin: IntArray, end: IntArray) -> IntArray:
    """Which of the sorted, disjoint stretches each kernel starts in; −1 for none."""
    if not len(begin):
        return np.full(len(kernels["start"]), -1, dtype=np.int64)
    place = np.searchsorted(begin, kernels["start"], side="right") - 1
    inside = (place >= 0) & (kernels["start"] < end[np.maximum(place, 0)])
    return np.asarray(np.where(inside, place, -1), dtype=np.int64)
