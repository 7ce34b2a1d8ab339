"""Series over builds: a fence while a segment is short, change points afterwards, segments by environment."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import conform
from tilewatch.tasks.analyse.series.change_points import change_points
from tilewatch.tasks.analyse.series.fence import Fence, fence
from tilewatch.tasks.analyse.series.point_history import COLUMNS
from tilewatch.tasks.analyse.series.t_scan import t_changes
from tilewatch.tasks.analyse.statistics.limits import (
    ANALYSIS_VERSION,
    ChangePointLimits,
    SeriesLimits,
    TScanLimits,
)
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers
from tilewatch.tasks.analyse.statistics.spread import HISTORY_SCHEMA, moderated
from tilewatch.tasks.analyse.tables import AnalysisError
from tilewatch.tasks.sql import sql

Texts = npt.NDArray[np.object_]

_ORDERED = """
WITH marked AS (
    SELECT *, lag(environment) OVER series IS DISTINCT FROM environment AS begins,
           row_number() OVER series - 1 AS position
    FROM history
    WINDOW series AS (
        PARTITION BY agent, evidence, device, experiment, arm, point_id ORDER BY started_ns, run_id
    )
)
SELECT m.*, sum(begins::INT) OVER (
           PARTITION BY m.agent, m.evidence, m.device, m.experiment, m.arm, m.point_id ORDER BY m.position
       ) - 1 AS segment,
       s.spread, s.degrees
FROM marked m LEFT JOIN spreads s USING (device, method_hash, experiment, arm, point_id)
ORDER BY m.agent, m.evidence, m.device, m.experiment, m.arm, m.point_id, m.position
"""


def series_table(
    history: pa.Table,
    *,
    spreads: pa.Table | None = None,
    limits: SeriesLimits | None = None,
    change_limits: ChangePointLimits | None = None,
    scan_limits: TScanLimits | None = None,
) -> pa.Table:
    """``point_history`` with segments and events: a ``series`` table.

    Each device has its own series. A change of ``environment`` starts a segment (event environment). A
    segment under ``long_from`` values, and the newest values of a longer one that the t scan cannot judge
    yet, are held against the fence: event fence, or spike where the next value is back. In a long segment a
    step is what E-divisive and the t scan agree on; what only E-divisive sees is a candidate.
    ``spreads`` comes from ``between_lease_spread`` or ``history_spread``. Raises AnalysisError where
    ``history`` lacks a column or has a value that is no positive number.
    """
    limits, scan_limits = limits or SeriesLimits(), scan_limits or TScanLimits()
    if missing := sorted(set(COLUMNS) - set(history.column_names)):
        raise AnalysisError(f"point history lacks {', '.join(missing)}")
    given = _floats(history["value_ns"].cast(pa.float64()))
    if bad := int(np.sum(~np.isfinite(given) | (given <= 0))):
        raise AnalysisError(
            f"point history: {bad} of {len(given)} values of value_ns are not positive numbers"
        )
    prepared = moderated(spreads if spreads is not None else HISTORY_SCHEMA.empty_table())
    rows = sql(_ORDERED, {"history": history, "spreads": prepared})
    values = np.asarray(rows["value_ns"].to_numpy())
    first = _segment_starts(rows)
    spread, degrees = (_floats(rows[name]) for name in ("spread", "degrees"))
    fenced = fence(values, first, spread, degrees, limits)
    found = _Events(values, first, fenced, limits)
    found.mark_fences(scan_limits)
    found.mark_steps(change_limits or ChangePointLimits(), scan_limits)
    return conform("series", _columns(rows, found))


class _Events:
    """Events of flat series, row by row; ``first`` is the row where each row's segment starts."""

    def __init__(self, values: Floats, first: Integers, fenced: Fence, limits: SeriesLimits) -> None:
        self.values, self.first, self.fenced, self.limits = values, first, fenced, limits
        self.event: Texts = np.full(len(values), "none", dtype=object)
        starts, counts = np.unique(first, return_counts=True)
        self.bounds = list(zip(starts.tolist(), (starts + counts).tolist(), strict=True))
        self.length = np.repeat(counts, counts)
        self.reference = np.where(np.isnan(fenced.delta_log), np.nan, np.roll(values, 1))
        self.ratio = np.exp(fenced.delta_log)
        self.fenced_rows = np.zeros(len(values), dtype=bool)

    def mark_fences(self, scan: TScanLimits) -> None:
        """Fence and spike events on short segments and on the newest values of long ones."""
        rows = np.arange(len(self.values))
        age = rows - self.first
        newest = self.length - age < scan.fore
        self.fenced_rows = ((self.length < self.limits.long_from) | newest) & (age > 0)
        outside = self.fenced.outside & self.fenced_rows
        delta = self.fenced.delta_log
        following = np.append(delta[1:], np.nan)
        back = np.abs(delta + following) <= self.fenced.fence_log
        last = age + 1 == self.length
        spike = outside & ~last & back & (np.sign(delta) == -np.sign(following))
        returns = np.append(False, spike[:-1]) & outside
        self.event[outside & ~returns] = "fence"
        self.event[spike & ~returns] = "spike"

    def mark_steps(self, change_limits: ChangePointLimits, scan_limits: TScanLimits) -> None:
        """Step and candidate events on long segments, with the means on both sides."""
        long = [(a, b) for a, b in self.bounds if b - a >= self.limits.long_from]
        stretches = [self.values[a:b] for a, b in long]
        divided = change_points(stretches, change_limits)
        scanned = t_changes(stretches, scan_limits)
        for (a, b), points, peaks in zip(long, divided, scanned, strict=True):
            edges = [0, *points, b - a]
            for place, point in enumerate(points):
                row = a + point
                agreed = any(abs(point - peak) <= self.limits.agreement for peak in peaks)
                if not agreed and self.event[row] != "none":
                    continue
                before = self.values[a + edges[place] : row].mean()
                after = self.values[row : a + edges[place + 2]].mean()
                self.event[row] = "step" if agreed else "candidate"
                self.reference[row], self.ratio[row] = before, after / before
                self.fenced_rows[row] = False


def _segment_starts(rows: pa.Table) -> Integers:
    """For each row the row where its segment starts."""
    begins = np.asarray(rows["begins"].to_numpy())
    return np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0)).astype(np.int64)


def _columns(rows: pa.Table, found: _Events) -> pa.Table:
    begins = rows["begins"].to_numpy() & (rows["position"].to_numpy() > 0)
    event = np.where(begins, "environment", found.event)
    fence_ratio = np.where(found.fenced_rows, np.exp(found.fenced.fence_log), np.nan)
    same = (
        "build", "build_id", "run_id", "evidence", "agent", "experiment", "arm", "point_id", "position",
        "started_ns", "environment", "segment", "processes", "value_ns",
    )  # fmt: skip
    columns = {name: rows[name] for name in same}
    columns |= {
        "metric": pa.repeat("duration_ns", rows.num_rows),
        "segment": rows["segment"].cast(pa.int64()),
        "reference_ns": pa.array(found.reference, from_pandas=True),
        "ratio": pa.array(found.ratio, from_pandas=True),
        "fence_ratio": pa.array(fence_ratio, from_pandas=True),
        "fence_reason": pa.array(found.fenced.reason, pa.string(), mask=~found.fenced_rows),
        "event": pa.array(event, pa.string()),
        "analysis_version": pa.repeat(ANALYSIS_VERSION, rows.num_rows),
    }
    return pa.table(columns)


def _floats(column: pa.ChunkedArray) -> Floats:
    return np.asarray(pc.fill_null(column, float("nan")).to_numpy())
