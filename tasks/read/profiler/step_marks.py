"""Steps that are marked in a profile, and what their names say: phase, requests, tokens.

SGLang writes ``step[EXTEND bs=8 toks=1024]``, vLLM ``execute_context_2(600)_generation_8(8)`` (requests, and
tokens in brackets) or, before 2026, ``execute_new_2_cached_8``; torch's own profiler ``ProfilerStep#3``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.read.origin import Origin

PREFIX = "step["
MARK = re.compile(r"step\[(?P<mode>\w+)(?: bs=(?P<requests>\d+))?(?: toks=(?P<tokens>\d+))?")
SERVER_PREFIXES = (PREFIX, "execute_context_", "execute_new_")
PROFILER_PREFIX = "ProfilerStep#"
_BATCH = re.compile(r"execute_context_(\d+)\((\d+)\)_generation_(\d+)\((\d+)\)")
_OLD_BATCH = re.compile(r"execute_new_(\d+)_cached_(\d+)")
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

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Marked:
    """What the name of a step says."""

    mode: str
    phase: str
    requests: int | None
    tokens: int | None


def marked(name: str) -> Marked | None:
    """What a server's mark says; None where the name is no such mark.

    A batch of vLLM with context requests prefills, even where others in it generate; the older mark does not
    tell a chunk of a prompt from a generated token, so its phase is unknown.
    """
    if found := MARK.match(name):
        requests, tokens = (int(found[key]) if found[key] else None for key in ("requests", "tokens"))
        return Marked(found["mode"], PHASES.get(found["mode"], "unknown"), requests, tokens)
    if found := _BATCH.match(name):
        context, context_tokens, generation, generation_tokens = (int(text) for text in found.groups())
        mode = "MIXED" if context and generation else "CONTEXT" if context else "GENERATION"
        phase = "prefill" if context else "decode"
        return Marked(mode, phase, context + generation, context_tokens + generation_tokens)
    if found := _OLD_BATCH.match(name):
        return Marked("EXECUTE", "unknown", int(found[1]) + int(found[2]), None)
    return None


def step_rows(
    marks: Iterable[tuple[int, str, int, int]], origin: Origin, source_file: str, *, bounds_kernels: bool
) -> pa.Table:
    """``stage_steps`` from (place in the file, name, start_ns, end_ns) of events that are marks."""
    rows: list[dict[str, Any]] = []
    for place, name, start, end in sorted(marks, key=lambda mark: (mark[2], mark[0])):
        if (found := marked(name)) is None:
            continue
        rows.append(
            {
                **origin.columns(),
                "step_id": len(rows),
                "phase": found.phase,
                "mode": found.mode,
                "requests": found.requests,
                "tokens": found.tokens,
                "start_ns": start,
                "end_ns": end,
                "bounds_kernels": bounds_kernels,
                "source_file": source_file,
                "source_line": place,
            }
        )
    return from_rows("stage_steps", rows)


def with_profiler_steps(kernels: pa.Table, marks: Iterable[tuple[int, str, int, int]]) -> pa.Table:
    """``kernels`` with the number of the ``ProfilerStep#`` that each was enqueued in, or started in.

    The start counts only where the file links no kernel to its launch.
    """
    found = sorted((start, end, name) for _, name, start, end in marks if name.startswith(PROFILER_PREFIX))
    numbers = [int(digits[0]) if (digits := re.findall(r"#(\d+)", name)) else -1 for _, _, name in found]
    if not found or not kernels.num_rows:
        return kernels
    steps = pa.table({"start_ns": [start for start, _, _ in found], "end_ns": [end for _, end, _ in found]})
    linked = kernels["host_enqueue_ns"].null_count < kernels.num_rows
    placed = kernels if linked else _enqueued_at_start(kernels)
    step = with_steps(placed, steps)["step_id"]
    index = kernels.column_names.index("step_id")
    taken = pa.array(numbers, pa.int64()).take(step.combine_chunks())
    return kernels.set_column(index, kernels.schema.field(index), taken)


def _enqueued_at_start(kernels: pa.Table) -> pa.Table:
    index = kernels.column_names.index("host_enqueue_ns")
    return kernels.set_column(index, kernels.schema.field(index), kernels["start_ns"])


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
