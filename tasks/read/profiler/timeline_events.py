"""The events of a timeline that matter for launches, as columns: device tasks and HostToDevice flows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tilewatch.tasks.read.profiler.json_events import Batch
from tilewatch.tasks.read.profiler.step_marks import PROFILER_PREFIX, SERVER_PREFIXES
from tilewatch.tasks.read.quarantine import Refusal
from tilewatch.tasks.read.tabular import cells
from tilewatch.tasks.read.tabular.layout import Kind

IntArray = npt.NDArray[np.int64]

TASK_COLUMNS = ("name", "type", "lane", "stream", "task", "block", "start", "duration")

_COMMUNICATION = "COMMUNICATION"
_KINETO = "kernel"
"""Category of a device kernel in traces of Kineto, which have no task type."""
_MARKS = (*SERVER_PREFIXES, PROFILER_PREFIX)
_NARROW = np.iinfo(np.int32)


class Codes:
    """Small integers for values that repeat: names, lanes (process, thread)."""

    def __init__(self) -> None:
        self.values: dict[Any, int] = {}

    def code(self, value: Any) -> int:
        """The integer of a value, the same at every call."""
        return self.values.setdefault(value, len(self.values))


class Columns:
    """Rows of one kind of event as NumPy columns, gathered batch by batch.

    Every batch is kept in 32 bits where its values fit: a timeline of 1 GB has millions of tasks and flows.
    """

    def __init__(self, *names: str) -> None:
        self._names = names
        self._parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in names}

    def add(self, *arrays: npt.NDArray[Any]) -> None:
        """Append one batch, an array a column."""
        for name, array in zip(self._names, arrays, strict=True):
            self._parts[name].append(_narrow(array))

    def take(self, name: str) -> npt.NDArray[Any]:
        """One whole column; the parts are given up."""
        parts = self._parts.pop(name)
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


@dataclass
class TimelineEvents:
    """Device tasks, flow starts (host) and flow ends (device) of a timeline, as columns; times in ns."""

    names: Codes = field(default_factory=Codes)
    types: Codes = field(default_factory=Codes)
    lanes: Codes = field(default_factory=Codes)
    tasks: Columns = field(default_factory=lambda: Columns(*TASK_COLUMNS))
    starts: Columns = field(default_factory=lambda: Columns("flow", "time"))
    ends: Columns = field(default_factory=lambda: Columns("flow", "lane", "time"))
    processes: dict[str, str] = field(default_factory=dict)
    marks: list[tuple[int, str, int, int]] = field(default_factory=list)
    """Marked steps: place in the file, name, start and end in ns."""
    event_count: int = 0
    host_event_count: int = 0

    def add(self, batch: Batch, source_file: str) -> list[Refusal]:
        """Sort the events of a batch in; events whose times cannot be read are refused."""
        before, self.event_count = self.event_count, self.event_count + len(batch.events)
        marks: list[dict[str, Any]] = []
        places: dict[int, int] = {}
        tasks: list[dict[str, Any]] = []
        starts: list[dict[str, Any]] = []
        ends: list[dict[str, Any]] = []
        for place, event in enumerate(batch.events, start=before + 1):
            phase = event.get("ph")
            if phase == "X":
                args = event.get("args")
                if isinstance(args, dict) and (
                    "Task Type" in args or event.get("cat") == _KINETO or _is_collective(event)
                ):
                    tasks.append(event)
                else:
                    self.host_event_count += 1
                    name = event.get("name")
                    if isinstance(name, str) and name.startswith(_MARKS):
                        marks.append(event)
                        places[id(event)] = place
            elif phase in ("s", "f"):
                if event.get("cat") == "HostToDevice":
                    (starts if phase == "s" else ends).append(event)
            elif phase == "M" and event.get("name") == "process_name":
                self.processes[str(event.get("pid"))] = str((event.get("args") or {}).get("name"))
        refusals: list[Refusal] = []
        self._add_tasks(_timed(tasks, ("ts", "dur"), source_file, refusals))
        good, (start, spent) = _timed(marks, ("ts", "dur"), source_file, refusals)
        self.marks += [
            (places[id(event)], str(event["name"]), int(begin), int(begin + lasts))
            for event, begin, lasts in zip(good, start, spent, strict=True)
        ]
        for events, columns in ((starts, self.starts), (ends, self.ends)):
            good, times = _timed(events, ("ts",), source_file, refusals)
            flow = _array((_flow(event.get("id")) for event in good), len(good))
            lane = _array((self._lane(event) for event in good), len(good))
            columns.add(*((flow, times[0]) if columns is self.starts else (flow, lane, times[0])))
        return refusals

    def _add_tasks(self, timed: tuple[list[dict[str, Any]], list[IntArray]]) -> None:
        events, (start, duration) = timed
        count = len(events)
        args = [event["args"] for event in events]
        kinds = (
            a.get("Task Type", _COMMUNICATION if _is_collective(e) else None)
            for a, e in zip(args, events, strict=True)
        )
        kind = _array((self.types.code(found) for found in kinds), count)
        self.tasks.add(
            _array((self.names.code(str(event.get("name"))) for event in events), count),
            kind,
            _array((self._lane(event) for event in events), count),
            _array(
                (_number(a.get("Physic Stream Id", a.get("Stream Id", a.get("stream")))) for a in args), count
            ),
            _array((_number(a.get("Task Id")) for a in args), count),
            _array((_number(a.get("Block Dim", a.get("Block Num"))) for a in args), count),
            start,
            duration,
        )

    def _lane(self, event: dict[str, Any]) -> int:
        return self.lanes.code((event.get("pid"), event.get("tid")))


def _flow(identity: Any) -> int:
    """A flow id of up to 18 digits as it is; any other one as a negative hash of 63 bits.

    Real ids have up to 20 digits and every one is another: kept as texts they would fill the memory.
    """
    text = str(identity)
    if text.isdecimal() and len(text) < 19:
        return int(text)
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return -1 - (int.from_bytes(digest, "big") >> 1)


def _is_collective(event: dict[str, Any]) -> bool:
    return str(event.get("name")).startswith("hcom_") and "connection_id" in event["args"]


def _timed(
    events: list[dict[str, Any]], keys: tuple[str, ...], source_file: str, refusals: list[Refusal]
) -> tuple[list[dict[str, Any]], list[IntArray]]:
    """Events whose times can all be read, and those times."""
    columns, bad = [], np.zeros(len(events), dtype=np.bool_)
    for key in keys:
        text = pa.array([_text(event.get(key)) for event in events], type=pa.string())
        values, wrong = cells.typed(text, Kind.TIMESTAMP)
        bad |= wrong | values.is_null().to_numpy(zero_copy_only=False)
        columns.append(values.fill_null(0).to_numpy(zero_copy_only=False))
    for index in np.flatnonzero(bad).tolist():
        reason = f"{' or '.join(keys)}: expected {Kind.TIMESTAMP.value}"
        refusals.append(
            Refusal(source_file, None, "cell_type", reason, keys[0], raw_text=repr(events[index])[:4000])
        )
    if bad.any():
        events = [event for event, wrong in zip(events, bad, strict=True) if not wrong]
        columns = [column[~bad] for column in columns]
    return events, columns


def _text(value: Any) -> str | None:
    return None if value is None or isinstance(value, dict | list) else str(value)


def _number(value: Any) -> int:
    """A whole number, -1 where the event has none."""
    return value if isinstance(value, int) and -1 < value < 1 << 62 else -1


def _narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same integers in 32 bits, where they fit."""
    fits = not len(values) or (values.min() >= _NARROW.min and values.max() <= _NARROW.max)
    return values.astype(np.int32) if fits else values


def _array(values: Iterable[int], count: int) -> IntArray:
    return np.fromiter(values, dtype=np.int64, count=count)
