"""What the ingested files can and cannot answer, and which setting of the profiler would have given it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_SCHEDULE = (
    "profile with torch_npu.profiler.schedule and call step() after each, or let the server mark its steps"
)
_SHAPES = "profile at Level1 with record_shapes=True, and keep kernel_details.csv beside the timeline"
_FORMATS = "profile at Level1 or Level2, whose kernel_details.csv has the formats of every tensor"
_REPEATS = "profile several steps (schedule(active=10)) or ingest several profiles of the same program"
_RANKS = "profile on every rank and ingest the folders together"
_COUNTERS = "profile with aic_metrics=PipeUtilization at Level1"


@dataclass(frozen=True)
class Answer:
    """One question about the kernels that were read: whether it has an answer, what there is, what to set."""

    question: str
    answered: bool
    found: str
    setting: str = ""


def answers(captures: Sequence[Mapping[str, pa.Table]]) -> tuple[Answer, ...]:
    """Answers about all captures of an ingest together, none where no capture has a kernel.

    ``captures`` are tables by contract name.
    """
    kernels = _column_tables([tables["kernels"] for tables in captures if tables.get("kernels")])
    if kernels is None:
        return ()
    rows = kernels.num_rows
    stepped, shaped, formatted, counted = (
        rows - kernels[name].null_count for name in ("step_id", "input_shapes", "input_formats", "metrics")
    )
    steps = kernels.select(["capture_id", "step_id"]).filter(pc.is_valid(kernels["step_id"]))
    repeats = max(steps.group_by(["capture_id", "step_id"]).aggregate([]).num_rows, _captures(kernels))
    ranks = _ranks(captures)
    return (
        _answer("steps", stepped > 0, f"{stepped} of {rows} kernels are in a step", _SCHEDULE),
        _answer("shapes", shaped > 0, f"{shaped} of {rows} kernels have shapes", _SHAPES),
        _answer("formats", formatted > 0, f"{formatted} of {rows} kernels have formats", _FORMATS),
        _answer("counters", counted > 0, f"{counted} of {rows} kernels have counters", _COUNTERS),
        _answer("repetitions", repeats > 1, f"{repeats} steps or profiles", _REPEATS),
        _answer("ranks", ranks > 1, f"{ranks} ranks or devices", _RANKS),
    )


def _answer(question: str, answered: bool, found: str, setting: str) -> Answer:
    return Answer(question, answered, found, "" if answered else setting)


def _column_tables(tables: Sequence[pa.Table]) -> pa.Table | None:
    names = ["capture_id", "step_id", "input_shapes", "input_formats", "metrics"]
    chosen = [table.select(names) for table in tables if table.num_rows]
    return pa.concat_tables(chosen) if chosen else None


def _captures(kernels: pa.Table) -> int:
    return len(pc.unique(kernels["capture_id"]))


def _ranks(captures: Sequence[Mapping[str, pa.Table]]) -> int:
    """Ranks that the profiles name, else devices of the kernels; one where neither is said."""
    named: set[str] = set()
    devices: set[int] = set()
    for tables in captures:
        if (row := tables.get("captures")) is not None and row.num_rows:
            told = dict(row["environment"][0].as_py() or [])
            named |= {told["rank_id"]} if "rank_id" in told else set()
        if (kernels := tables.get("kernels")) is not None:
            devices |= set(pc.unique(kernels["device_id"].drop_null()).to_pylist())
    return max(len(named), len(devices), 1)
