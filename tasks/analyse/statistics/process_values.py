"""From samples to process values: the median of one process at one point, the unit of every statistic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tilewatch.tasks.analyse.statistics.robust import hold_stalls, middles, widened
from tilewatch.tasks.analyse.tables import AnalysisError
from tilewatch.tasks.sql import sql

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

KEY = ("experiment", "arm", "point_id")

_VALUES = """
SELECT c.run_id, c.experiment, c.arm, c.role, s.point_id, s.capture_id, c.process_index,
       c.block, c.lease_id, c.device, s.value_ns, s.sample_count, s.null_reason
FROM (
    SELECT capture_id, point_id,
           median(duration_ns) FILTER (WHERE NOT warm_up AND NOT discarded) AS value_ns,
           count(duration_ns) FILTER (WHERE NOT warm_up AND NOT discarded) AS sample_count,
           max(null_reason) AS null_reason
    FROM samples GROUP BY ALL
) s JOIN captures c USING (capture_id)
WHERE c.kind IN ('timing', 'ingested') AND ($1 IS NULL OR c.role = $1)
ORDER BY c.experiment, c.arm, c.role, s.point_id, s.value_ns, s.capture_id
"""

_SAMPLES = ("capture_id", "point_id", "duration_ns", "null_reason", "warm_up", "discarded")
_CAPTURES = (
    "capture_id", "run_id", "experiment", "arm", "role", "kind", "process_index", "block", "lease_id",
    "device",
)  # fmt: skip


def process_values(samples: pa.Table, captures: pa.Table, role: str | None = None) -> pa.Table:
    """One row per (run, experiment, arm, role, point, capture), sorted by point and then by value.

    With ``role`` only processes of that role.

    ``value_ns`` is the median of the kept samples (no warm-up, not discarded, duration present), null where
    none is kept; ``null_reason`` then says why, where the samples do. What belongs to the process
    comes from its capture. Processes of kind tiling and counters time nothing and are left out. Raises
    AnalysisError for samples whose capture is not in ``captures``.
    """
    lost = sql(
        "SELECT DISTINCT capture_id FROM samples ANTI JOIN captures USING (capture_id) ORDER BY 1 LIMIT 5",
        {"samples": samples.select(["capture_id"]), "captures": captures.select(["capture_id"])},
    )
    if lost.num_rows:
        raise AnalysisError(f"samples of unknown captures: {', '.join(lost['capture_id'].to_pylist())}")
    return sql(_VALUES, {"samples": samples.select(_SAMPLES), "captures": captures.select(_CAPTURES)}, [role])


@dataclass(frozen=True)
class PointStatistics:
    """Per point: ``keys`` (KEY columns) and, aligned with its rows, the statistics of its processes."""

    keys: pa.Table
    processes: Integers
    """Processes with a value."""
    mean_log: Floats
    """Robust centre of ln(value in ns): the mean, stalled processes held at their fence (see ``robust``)."""
    variance_log: Floats
    """Variance of one process, as its mean has n times less of it; NaN under two processes."""
    degrees: Floats
    """Degrees of freedom of that variance."""
    median_ns: Floats
    """Point value: median over the process values."""
    away: Floats
    """What each value of the sorted table is off the centre of its point, stalls held at their fence."""
    dies: Integers
    """Devices that measured the point: a block factor, taken out of mean and variance."""


def point_statistics(values: pa.Table) -> PointStatistics:
    """Statistics per (experiment, arm, point) of sorted process values; points without any are left out.

    Where several dies measured a point, the mean is that of their means, each counting the same, and the
    variance is that within dies, as a single die of so many processes would have to have it.
    """
    values = values.filter(values["value_ns"].is_valid())
    data = values["value_ns"].to_numpy().astype(np.float64)
    starts = _starts(values)
    keys = values.select(list(KEY)).take(pa.array(starts))
    counts = np.diff(np.append(starts, len(data))).astype(np.int64)
    medians = middles(data, starts, counts) if len(starts) else np.zeros(0)
    device = values["device"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    logs, kept = _held(np.log(data), device, counts, _pool(keys))
    means, variances = moments(logs, starts, counts)
    dies, die_means, die_variances = _within_dies(device, logs, starts, counts)
    means, variances = np.where(dies > 1, die_means, means), np.where(dies > 1, die_variances, variances)
    degrees = np.where(counts > dies, np.maximum(kept - dies, 1), 0).astype(np.float64)
    away = logs - np.repeat(means, counts)
    return PointStatistics(
        keys, counts, means, widened(variances, counts, kept), degrees, medians, away, dies
    )


def _held(logs: Floats, device: Integers, counts: Integers, pool: Integers) -> tuple[Floats, Integers]:
    """Logs with the stalls of each point and die at their fence, and how many values a point kept."""
    point = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((logs, device, point))
    cell = point[order] * (device.max(initial=0) + 1) + device[order]
    starts = np.flatnonzero(np.diff(cell, prepend=-1)).astype(np.int64)
    held = hold_stalls(logs[order], starts, pool[point[order]][starts])
    back = np.empty(len(logs))
    back[order] = held.logs
    return back, np.bincount(point[order][starts], held.kept, len(counts)).astype(np.int64)


def moments(logs: Floats, starts: Integers, counts: Integers) -> tuple[Floats, Floats]:
    """Mean and sample variance of each run of values; the variance is NaN under two."""
    sums = np.add.reduceat(logs, starts) if len(starts) else np.zeros(0)
    means = sums / counts
    squares = (logs - np.repeat(means, counts)) ** 2
    total = np.add.reduceat(squares, starts) if len(starts) else np.zeros(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return means, np.where(counts > 1, total / (counts - 1), np.nan)


def _pool(keys: pa.Table) -> Integers:
    """An integer an (experiment, arm): points of one arm scatter alike."""
    codes = [keys[n].combine_chunks().dictionary_encode().indices.to_numpy() for n in KEY[:2]]
    return np.asarray(codes[0].astype(np.int64) * (codes[1].max(initial=0) + 1) + codes[1])


def _within_dies(
    codes: Integers, logs: Floats, starts: Integers, counts: Integers
) -> tuple[Integers, Floats, Floats]:
    """Dies of each point, the mean of their means, and n times the variance of that mean (NaN for n = dies).

    With s² the variance within dies, Var(mean of D die means) = s² Σ 1/n_d / D²: analysis of randomised
    complete blocks with dies as blocks.
    """
    point = np.repeat(np.arange(len(starts)), counts)
    _, first, cell, size = np.unique(
        point * (codes.max(initial=0) + 1) + codes, return_index=True, return_inverse=True, return_counts=True
    )
    of_cell = point[first]
    cell_mean = np.bincount(cell, logs, len(first)) / size
    squares = np.bincount(point, (logs - cell_mean[cell]) ** 2, len(starts))
    dies = np.bincount(of_cell, minlength=len(starts)).astype(np.int64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(of_cell, cell_mean, len(starts)) / dies
        inverse = np.bincount(of_cell, 1 / size, len(starts))
        within = np.where(counts > dies, squares / (counts - dies), np.nan)
    return dies, mean, within * counts * inverse / dies**2


def _starts(values: pa.Table) -> Integers:
    """First row of each point in a table sorted by point."""
    if not values.num_rows:
        return np.zeros(0, dtype=np.int64)
    changed = np.zeros(values.num_rows, dtype=bool)
    changed[0] = True
    for name in KEY:
        codes = values[name].combine_chunks().dictionary_encode().indices.to_numpy()
        changed[1:] |= codes[1:] != codes[:-1]
    return np.flatnonzero(changed).astype(np.int64)
