"""Timing of one prepared point: warm-up until steady, then samples, with a discard budget and a time limit.

A sample is a batch of calls that takes at least ``min_sample_ns``; each call takes the next weight copy of
the rotation. Warm-up runs the same instrumented batches. After the discard budget a disturbed sample is kept
and says so: a point is never left without a number. How a batch is timed is the backend's.
"""

from __future__ import annotations

import gc
import itertools
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from backends import Interval
from guard import Guard
from interference import THROTTLED, Interference

STEADY_ROUNDS = 3
STEADY_SPREAD = 0.01
STEADY_TICKS = 2
"""Rounds that differ by no more than this many ticks of the device's clock agree."""
LEAST_SAMPLES = 3
WARM_UP_SHARE = 0.5
"""Share of the time limit that warm-up may use."""

Row = Dict[str, Any]
Call = Callable[[], Any]


class Timing(NamedTuple):
    """What happened while a point was timed, beside its rows."""

    calls_per_sample: int
    warm_up_rounds: int
    steady: bool
    kept: int
    discarded: int
    stopped_by: str
    flags: List[str]


class Sampler:
    """Takes the samples of one point after another; ``position`` counts every batch of the process."""

    def __init__(
        self,
        amount: Mapping[str, int],
        guard: Guard,
        interference: Interference,
        run: Callable[[Sequence[Call]], Interval],
        tick_ns: int = 0,
    ) -> None:
        self._amount = amount
        self._run = run
        self._least_spread_ns = STEADY_TICKS * tick_ns
        self._guard = guard
        self.interference = interference
        self._position = 0
        self.in_calls_ns = 0

    def take(self, point_id: str, calls: List[Call], rows: List[Row]) -> Timing:
        """Time ``calls``; every finished batch is in ``rows`` at once, so that a failure loses none.

        Raises whatever a call raises, and Stopped between batches.
        """
        batches = _Batches(point_id, calls, rows)
        started_ns = time.perf_counter_ns()
        gc.disable()
        try:
            steady = self._warm_up(batches, started_ns)
            return self._samples(batches, started_ns, steady)
        finally:
            gc.enable()

    def untimed(self, point_id: str, reason: str, rows: List[Row]) -> Timing:
        """The row of a point that has nothing of its own to time."""
        rows.append(_row(point_id, 0, self._next_position(), 1, None, null_reason=reason))
        return Timing(1, 0, True, 1, 0, reason, [])

    def _warm_up(self, batches: "_Batches", started_ns: int) -> bool:
        """Find the batch size, then repeat until three rounds agree; False where the limits came first."""
        limit_ns = int(WARM_UP_SHARE * self._amount["max_point_ns"])
        rounds: List[float] = []
        while len(batches.rows) < self._amount["warm_up_max_rounds"]:
            interval_ns = self._batch(batches, warm_up=True)
            if len(batches.rows) == 1:
                continue  # the first call also creates primitives: it says nothing about the next
            if interval_ns < self._amount["min_sample_ns"]:
                batches.grow(self._amount["min_sample_ns"] / interval_ns)
                continue
            rounds.append(interval_ns / batches.size)
            last = rounds[-STEADY_ROUNDS:]
            allowed_ns = max(STEADY_SPREAD * min(last), self._least_spread_ns)
            if len(last) == STEADY_ROUNDS and max(last) - min(last) <= allowed_ns:
                return True
            if time.perf_counter_ns() - started_ns + interval_ns > limit_ns:
                break
        return False

    def _samples(self, batches: "_Batches", started_ns: int, steady: bool) -> Timing:
        warm_up_rounds = len(batches.rows)
        kept = discarded = disturbed = 0
        flags = [] if steady else ["warm_up_not_steady"]
        stopped_by = "samples"
        wanted = self._amount["samples"]
        while kept < wanted:
            spent_ns = time.perf_counter_ns() - started_ns
            if kept >= min(LEAST_SAMPLES, wanted) and spent_ns > self._amount["max_point_ns"]:
                stopped_by = "max_point_ns"
                break
            self._batch(batches, warm_up=False, may_discard=discarded < self._amount["discard_budget"])
            row = batches.rows[-1]
            discarded += row["discarded"]
            kept += not row["discarded"]
            disturbed += row["discard_reason"] is not None and not row["discarded"]
        if disturbed:
            flags.append("discard_budget_spent")
        return Timing(batches.size, warm_up_rounds, steady, kept, discarded, stopped_by, flags)

    def _batch(self, batches: "_Batches", warm_up: bool, may_discard: bool = False) -> int:
        self._guard.check()
        batch = list(itertools.islice(batches.rotation, batches.size))
        before = self.interference.mark()
        interval = self._run(batch)
        interval_ns = interval.interval_ns
        disturbance = self.interference.between(before, interval_ns)
        self.in_calls_ns += interval_ns
        row = _row(batches.point_id, len(batches.rows), self._next_position(), len(batch), interval_ns)
        row["host_enqueue_ns"] = _per_call(interval.host_enqueue_ns, batch)
        row["device_event_ns"] = _per_call(interval.device_event_ns, batch)
        row["warm_up"] = warm_up
        row["throttled"] = disturbance == THROTTLED
        if disturbance is not None and not warm_up:
            row["discarded"] = may_discard
            row["discard_reason"] = disturbance if may_discard else f"{disturbance}; kept, budget spent"
        batches.rows.append(row)
        return interval_ns

    def _next_position(self) -> int:
        self._position += 1
        return self._position - 1


class _Batches:
    """The rotation over one point's calls and the size of a batch."""

    def __init__(self, point_id: str, calls: List[Call], rows: List[Row]) -> None:
        self.point_id = point_id
        self.rotation: Iterator[Call] = itertools.cycle(calls)
        self.rows = rows
        self.size = 1

    def grow(self, factor: float) -> None:
        """Enlarge the batch, at most tenfold, by what it lacks to the least duration and a little more."""
        self.size = max(self.size + 1, int(self.size * min(10.0, 1.2 * factor)))


def _per_call(duration_ns: Optional[int], batch: Sequence[Call]) -> Optional[int]:
    return None if duration_ns is None else round(duration_ns / len(batch))


def _row(
    point_id: str,
    sample: int,
    position: int,
    calls: int,
    interval_ns: Optional[int],
    null_reason: Optional[str] = None,
) -> Row:
    return {
        "point_id": point_id,
        "sample": sample,
        "position": position,
        "calls": calls,
        "interval_ns": interval_ns,
        "duration_ns": None if interval_ns is None else max(1, round(interval_ns / calls)),
        "null_reason": null_reason,
        "host_enqueue_ns": None,
        "device_event_ns": None,
        "warm_up": False,
        "discarded": False,
        "discard_reason": None,
        "throttled": False,
    }
