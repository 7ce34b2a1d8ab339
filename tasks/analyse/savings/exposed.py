"""Exposed time: which category each instant of a step belongs to, so that the parts add up to the step."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tilewatch.data_contracts import conform
from tilewatch.tasks.analyse.statistics.limits import ANALYSIS_VERSION
from tilewatch.tasks.analyse.statistics.process_values import Integers
from tilewatch.tasks.sql import sql

COMMUNICATION = ("collective", "dispatch", "combine")
"""Categories that only own time in which nothing computes: what runs under computing costs nothing."""

_SORTED = """
SELECT capture_id, coalesce(device_id, -1) AS device_id, coalesce(step_id, -1) AS step_id, category,
       list_contains($1, category) AS communicates,
       start_ns, start_ns + duration_ns AS end_ns,
       dense_rank() OVER (ORDER BY capture_id, device_id, step_id) - 1 AS step
FROM (SELECT * REPLACE (coalesce(category, 'other') AS category) FROM kernels)
WHERE start_ns IS NOT NULL
ORDER BY step, start_ns, end_ns, category
"""

_SUMMED = """
WITH step AS (
    SELECT capture_id, device_id, step_id, max(end_ns) - min(start_ns) AS step_ns FROM owned GROUP BY ALL
), category AS (
    SELECT capture_id, device_id, step_id, category, count(*) AS kernels, sum(end_ns - start_ns) AS busy_ns,
           sum(exposed_ns) AS exposed_ns
    FROM owned GROUP BY ALL
), every AS (
    SELECT * FROM category
    UNION ALL
    SELECT capture_id, device_id, step_id, 'idle', 0, 0, any_value(step_ns) - sum(exposed_ns)
    FROM category JOIN step USING (capture_id, device_id, step_id) GROUP BY capture_id, device_id, step_id
), capture AS (
    SELECT DISTINCT capture_id, run_id, build, build_id, experiment, arm, evidence FROM kernels
)
SELECT c.*, e.device_id, e.step_id, e.category, e.kernels, e.busy_ns::BIGINT AS busy_ns,
       e.exposed_ns::BIGINT AS exposed_ns, s.step_ns, $1 AS analysis_version
FROM every e JOIN capture c USING (capture_id) JOIN step s USING (capture_id, device_id, step_id)
ORDER BY capture_id, device_id, step_id, category = 'idle', category
"""


def exposed_times(kernels: pa.Table) -> pa.Table:
    """An ``exposed_times`` table of the ``kernels`` that have a start; a null category is ``other``.

    Ownership: an instant belongs to the computing kernel that started first among those running; where none
    computes, to the communication kernel that started first; else it is ``idle``. A communication that the
    profiler lists twice, or on two streams, therefore counts once. A step reaches from its first start to its
    last end; where the profile marks no steps a device is one step.
    """
    parts = owned(sql(_SORTED, {"kernels": kernels}, [list(COMMUNICATION)]))
    return conform("exposed_times", sql(_SUMMED, {"owned": parts, "kernels": kernels}, [ANALYSIS_VERSION]))


def saving_bound(exposed: pa.Table, category: str, saved_share: float) -> float:
    """The largest share of the steps that a saving can take off: exposed share of ``category`` × saving.

    ``saved_share`` is the share of the category's time that is saved, at most 1. A bound, not a forecast:
    what was hidden behind the category may come to light. NaN without steps.
    """
    total = sql(
        "SELECT sum(exposed_ns) AS ns, sum(exposed_ns) FILTER (WHERE category = $1) AS own FROM e",
        {"e": exposed},
        [category],
    ).to_pylist()[0]
    if not total["ns"]:
        return float("nan")
    return float(total["own"] or 0) / float(total["ns"]) * min(saved_share, 1.0)


def owned(rows: pa.Table) -> pa.Table:
    """``rows`` with ``exposed_ns``, the part of its step that each kernel owns by the rule above.

    Needs the columns step (counted from 0), start_ns, end_ns and communicates, and the order (step, start).
    """
    step, start, end = (
        np.asarray(rows[name].to_numpy()).astype(np.int64) for name in ("step", "start_ns", "end_ns")
    )
    communicates = np.asarray(rows["communicates"].to_numpy())
    # One time line: steps one after another, each moved behind the end of the one before.
    origin = _first(start, step)
    span = int((end - origin).max(initial=0)) + 1
    begin, finish = start - origin + step * span, end - origin + step * span
    exposed = np.zeros(len(step), dtype=np.int64)
    computing = ~communicates
    exposed[computing], taken = _union(begin[computing], finish[computing])
    alone, left = _union(begin[communicates], finish[communicates])
    hidden = _covered(taken, exposed[computing], left + alone) - _covered(taken, exposed[computing], left)
    exposed[communicates] = alone - hidden
    return rows.append_column("exposed_ns", pa.array(exposed))


def _first(start: Integers, step: Integers) -> Integers:
    """Earliest start of each row's step, for rows sorted by (step, start)."""
    place = np.searchsorted(step, step, side="left")
    return start[place] if len(step) else start


def _union(begin: Integers, finish: Integers) -> tuple[Integers, Integers]:
    """Length each interval adds to the union of those before it, and where that part begins; sorted input."""
    reached = np.maximum.accumulate(finish)
    left = begin.copy()
    left[1:] = np.maximum(begin[1:], reached[:-1])
    return np.maximum(finish - left, 0), left


def _covered(left: Integers, length: Integers, time: Integers) -> Integers:
    """How much of the disjoint, sorted stretches ``left`` … ``left + length`` lies before each ``time``."""
    if not len(left):
        return np.zeros(len(time), dtype=np.int64)
    place = np.searchsorted(left, time, side="right") - 1
    before = np.concatenate([[0], np.cumsum(length)])
    inside = np.minimum(time - left[np.maximum(place, 0)], length[np.maximum(place, 0)])
    return np.where(place < 0, 0, before[np.maximum(place, 0)] + inside).astype(np.int64)
