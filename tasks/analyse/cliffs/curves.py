"""Latency curves: the point values of one run along its axis, with everything else fixed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tilewatch.tasks.analyse.statistics.process_values import (
    Floats,
    Integers,
    point_statistics,
    process_values,
)
from tilewatch.tasks.analyse.tables import AnalysisError, RunTables
from tilewatch.tasks.sql import sql

_CURVES = """
SELECT p.build, p.build_id, p.run_id, p.experiment, p.arm, p.point_id, p.evidence, p.axis, p.axis_value,
    concat_ws(' ', p.operator, p.linear, 'K' || p.k, 'N' || p.n, p.weight_format_requested, p.launch_mode,
              p.allocation_regime, p.group_shape, p.local_experts || ' experts') AS curve,
    p.m, p.m_e, p.max_m_e, p.k, p.n, p.group_list, p.least_ns, p.least_bound, v.processes,
    v.variance_log, v.median_ns
FROM points p JOIN statistics v USING (experiment, arm, point_id)
ORDER BY p.experiment, p.arm, curve, p.axis_value, p.point_id
"""


_MEDIAN_VARIANCE = np.pi / 2
"""Variance of a median over that of a mean, for normal values (asymptotic)."""


@dataclass(frozen=True)
class Curves:
    """All curves of one run, flat and sorted: by curve, then by axis value."""

    rows: pa.Table
    """One row a point: identity, curve, axis, shape, processes, variance_log, median_ns."""
    index: Integers
    """Number of the curve of each row, ascending."""
    axis: Integers
    """Axis value of each row, rising within a curve."""
    value_ns: Floats
    """Point value of each row."""
    error_log: Floats
    """Standard error of ln(value); NaN for a single process."""


def curves(tables: RunTables) -> Curves:
    """The curves of one run: points with a value, main processes only.

    A curve is what shares experiment, arm, operator, linear, K, N, format, launch mode and, for grouped
    matmul, allocation regime, group shape and experts. Raises AnalysisError for more than one run, and where
    two points of a curve have the same axis value.
    """
    if tables.runs.num_rows and len(runs := tables.distinct("run_id")) > 1:
        raise AnalysisError(f"curves belong to one run, not to {', '.join(runs)}")
    found = point_statistics(process_values(tables.samples, tables.captures, "main"))
    statistics = found.keys
    for name in ("processes", "variance_log", "median_ns"):
        statistics = statistics.append_column(name, pa.array(getattr(found, name)))
    rows = sql(_CURVES, {"points": tables.points, "statistics": statistics})
    index = _curve_index(rows)
    axis = np.asarray(rows["axis_value"].to_numpy(), dtype=np.int64)
    twice = np.flatnonzero((np.diff(index) == 0) & (np.diff(axis) == 0))
    if len(twice):
        row = rows.slice(int(twice[0]), 1).to_pylist()[0]
        raise AnalysisError(
            f"{row['experiment']} {row['arm']} {row['curve']}: "
            f"two points at {row['axis']}={row['axis_value']}"
        )
    processes = rows["processes"].to_numpy()
    error = np.sqrt(_MEDIAN_VARIANCE * rows["variance_log"].to_numpy() / np.maximum(processes, 1))
    return Curves(rows, index, axis, np.asarray(rows["median_ns"].to_numpy()), np.asarray(error))


def _curve_index(rows: pa.Table) -> Integers:
    changed = np.zeros(rows.num_rows, dtype=bool)
    for name in ("experiment", "arm", "curve"):
        codes = rows[name].combine_chunks().dictionary_encode().indices.to_numpy()
        changed[1:] |= codes[1:] != codes[:-1]
    return np.cumsum(changed).astype(np.int64)


def grouped_median(values: Floats, group: Integers) -> Floats:
    """Median of ``values`` per group, repeated for each row; NaN values are ignored, NaN for none."""
    order = np.lexsort((values, group))
    ordered, groups = values[order], group[order]
    valid = ~np.isnan(ordered)
    first = np.searchsorted(groups, groups, side="left")
    # NaN sorts last within its group, so the valid values are the first ones.
    counts = np.bincount(groups[valid], minlength=int(group.max(initial=-1)) + 1)[groups]
    low, high = first + np.maximum(counts - 1, 0) // 2, first + counts // 2
    last = len(values) - 1
    middle = (ordered[np.minimum(low, last)] + ordered[np.minimum(high, last)]) / 2
    result = np.empty(len(values))
    result[order] = np.where(counts > 0, middle, np.nan)
    return result
