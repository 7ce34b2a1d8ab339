"""Steps that a server marks in its profile, ``step[EXTEND bs=8 toks=1024]``, and the phase of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import from_rows, schema
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.json_events import event_batches
from tilewatch.tasks.read.tabular.cells import typed
from tilewatch.tasks.read.tabular.layout import Kind

PREFIX = "step["
MARK = re.compile(r"step\[(?P<mode>\w+)(?: bs=(?P<requests>\d+))?(?: toks=(?P<tokens>\d+))?")
PHASES = {
    "EXTEND": "prefill",
    "MIXED": "prefill",
    "SPLIT_PREFILL": "prefill",
    "DECODE": "decode",
    "TARGET_VERIFY": "target_verify",
    "DRAFT_EXTEND": "draft",
    "DRAFT_EXTEND_V2": "draft",
}
"""Phase by SGLang's forward mode; another mode is ``unknown``. A mixed batch prefills while others decode."""

_CHUNK_BYTES = 1 << 20
_ROWS_AT_ONCE = 500_000
IntArray = npt.NDArray[np.int64]


def step_rows(
    marks: Iterable[tuple[int, str, int, int]], origin: Origin, source_file: str, *, bounds_kernels: bool
) -> pa.Table:
    """``stage_steps`` from (place in the file, name, start_ns, end_ns) of events that are marks."""
    rows: list[dict[str, Any]] = []
    for place, name, start, end in sorted(marks, key=lambda mark: (mark[2], mark[0])):
        if (found := MARK.match(name)) is None:
            continue
        rows.append(
            {
                **origin.columns(),
                "step_id": len(rows),
                "phase": PHASES.get(found["mode"], "unknown"),
                "mode": found["mode"],
                **{key: int(found[key]) if found[key] else None for key in ("requests", "tokens")},
                "start_ns": start,
                "end_ns": end,
                "bounds_kernels": bounds_kernels,
                "source_file": source_file,
                "source_line": place,
            }
        )
    return from_rows("stage_steps", rows)


def timeline_steps(path: Path, origin: Origin, source_file: str) -> pa.Table:
    """``stage_steps`` of a trace_view.json, whose marks stand on the host: kernels are enqueued inside them.

    A file without a mark is only searched, not parsed.
    """
    if not _holds_marks(path):
        return schema("stage_steps").empty_table()
    events: list[dict[str, Any]] = []
    places: list[int] = []
    seen = 0
    for batch in event_batches(path, source_file):
        for place, event in enumerate(batch.events, start=seen + 1):
            if event.get("ph") == "X" and str(event.get("name")).startswith(PREFIX):
                events.append(event)
                places.append(place)
        seen += len(batch.events)
    start, bad_start = typed(pa.array([str(e.get("ts")) for e in events], pa.string()), Kind.TIMESTAMP)
    spent, bad_spent = typed(pa.array([str(e.get("dur")) for e in events], pa.string()), Kind.DURATION)
    good = [i for i in np.flatnonzero(~(bad_start | bad_spent)) if start[i].is_valid and spent[i].is_valid]
    marks = [
        (places[i], str(events[i]["name"]), start[i].as_py(), start[i].as_py() + spent[i].as_py())
        for i in good
    ]
    return step_rows(marks, origin, source_file, bounds_kernels=False)


def with_steps(kernels: pa.Table, steps: pa.Table) -> pa.Table:
    """``kernels`` with the step that the host enqueued each of them in.

    A kernel without a known enqueue time (a replayed graph has one for all its kernels) belongs to the step
    of its neighbours on the device where both have the same; else its step stays null.
    """
    if not steps.num_rows or not kernels.num_rows:
        return kernels
    begin, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    host = pc.fill_null(kernels["host_enqueue_ns"], -1).to_numpy()
    place = np.searchsorted(begin, host, side="right") - 1
    step = np.where((place >= 0) & (host >= 0) & (host < end[np.maximum(place, 0)]), place, -1)
    device = pc.fill_null(kernels["device_id"], -1).to_numpy()
    order = np.lexsort((pc.fill_null(kernels["start_ns"], -1).to_numpy(), device))
    step[order] = _between(step[order], (host >= 0)[order], device[order])
    index = kernels.column_names.index("step_id")
    known = pa.array(step.astype(np.int64), mask=step < 0)
    return kernels.set_column(index, kernels.schema.field(index), known)


def _between(step: IntArray, told: npt.NDArray[np.bool_], device: IntArray) -> IntArray:
    """Fill rows that were not told their step where the told ones before and after agree."""
    rows = np.arange(len(step))
    before = np.maximum.accumulate(np.where(told, rows, -1))
    after = np.minimum.accumulate(np.where(told, rows, len(step))[::-1])[::-1]
    inside = ~told & (before >= 0) & (after < len(step))
    left, right = np.maximum(before, 0), np.minimum(after, len(step) - 1)
    same = inside & (step[left] == step[right]) & (device[left] == device) & (device[right] == device)
    return np.asarray(np.where(same, step[left], step))


def _holds_marks(path: Path) -> bool:
    word, tail = PREFIX.encode(), b""
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            if word in tail + chunk:
                return True
            tail = chunk[-len(word) :]
    return False
