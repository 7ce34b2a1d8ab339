"""Anchor kernels: what both builds run and W8A8 work leaves alone; they show how far two leases drifted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tilewatch.tasks.analyse.statistics.limits import AnchorLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats
from tilewatch.tasks.analyse.tables import RunTables
from tilewatch.tasks.sql import sql

ANCHOR_COLUMNS = ("experiment", "arm", "point_id")

_ANCHORS = """
SELECT DISTINCT experiment, arm, point_id FROM base SEMI JOIN candidate USING (experiment, arm, point_id)
ORDER BY ALL
"""
_BF16 = "SELECT * FROM points WHERE operator IN ('matmul', 'grouped_matmul') AND dtype_w = 'bfloat16'"


@dataclass(frozen=True)
class Drift:
    """What all kernels of one lease are slower by than in the other, in logs, as the anchors show it."""

    log: float
    anchors: int
    error_variance: float
    """Of ``log``: a median of so many anchors."""
    own_variance: float
    """Of one kernel's difference beyond the shared drift and the scatter of its processes."""
    degrees: float


def anchor_kernels(base: RunTables, candidate: RunTables) -> pa.Table:
    """The BF16 counterparts that both sides measured, as ANCHOR_COLUMNS; empty where there are none.

    A build may change some of them too: the median of all bears it, and what they disagree by widens the
    interval of every row.
    """
    sides = {name: sql(_BF16, {"points": s.points}) for name, s in (("base", base), ("candidate", candidate))}
    return sql(_ANCHORS, sides)


def drift_of(
    difference: Floats, variance: Floats, anchors: npt.NDArray[np.bool_], limits: AnchorLimits | None = None
) -> Drift | None:
    """Drift by the rows that ``anchors`` marks; None with too few, or if it is larger than leases make.

    ``difference`` and ``variance`` (by processes alone) are those of all rows. Scatter of the anchors about
    their median, by median absolute deviation, less what their processes explain is ``own_variance``.
    """
    limits = limits or AnchorLimits()
    chosen = anchors & np.isfinite(difference) & np.isfinite(variance)
    count = int(np.count_nonzero(chosen))
    if count < limits.fewest:
        return None
    found = difference[chosen]
    log = float(np.median(found))
    if abs(log) > np.log1p(limits.most_drift):
        return None
    around = float((1.4826 * np.median(np.abs(found - log))) ** 2) * count / (count - 1)
    own = max(around - float(np.median(variance[chosen])), 0.0)
    return Drift(log, count, np.pi / 2 * around / count, own, count - 1.0)
