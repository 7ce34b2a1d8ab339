"""Steps between plateaus: what one pair of noisy points does not show, sixteen points do.

Around each boundary a line with one jump is fitted to the logs of ``reach`` points on either side (ordinary
least squares: level, slope along the axis, jump). The jump over its standard error is the statistic. The
error is the larger of that by residuals and that by process values, so that neither a curved stretch nor a
lucky one is taken for sure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewatch.tasks.analyse.cliffs.curves import Curves, grouped_median
from tilewatch.tasks.analyse.cliffs.steps import surrounded
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers


@dataclass(frozen=True)
class Plateaus:
    """One row a step; NaN if the curve has fewer than ``reach`` points on a side."""

    jump: Floats
    """Fitted jump in logs."""
    statistic: Floats
    """Jump over its standard error."""
    before: Floats
    after: Floats
    """Fitted logs of the value on both sides of the boundary."""


def plateaus(curves: Curves, low: Integers, reach: int) -> Plateaus:
    """The fit around each boundary between rows ``low`` and ``low + 1``."""
    complete = surrounded(curves, low, reach)
    found = np.full((4, len(low)), np.nan)
    if complete.any():
        rows = low[complete][:, None] + np.arange(1 - reach, reach + 1)[None, :]
        found[:, complete] = _fitted(curves, rows, reach)
    return Plateaus(*found)


def _fitted(curves: Curves, rows: Integers, reach: int) -> Floats:
    """Jump, statistic, level before and level after of complete windows; ``rows`` is windows × points."""
    value, axis = np.log(curves.value_ns[rows]), curves.axis[rows].astype(np.float64)
    boundary = (axis[:, reach - 1] + axis[:, reach]) / 2
    scaled = (axis - boundary[:, None]) / np.ptp(axis, axis=1)[:, None]
    jump = np.broadcast_to((np.arange(2 * reach) >= reach).astype(np.float64), value.shape)
    design = np.stack([np.ones_like(value), scaled, jump], axis=2)
    normal = np.einsum("wpi,wpj->wij", design, design)
    solved = np.linalg.solve(normal, np.einsum("wpi,wp->wi", design, value)[:, :, None])[:, :, 0]
    residual = value - np.einsum("wpi,wi->wp", design, solved)
    scatter = np.sqrt((residual**2).sum(axis=1) / (2 * reach - design.shape[2]))
    pooled = grouped_median(curves.error_log, curves.index)[rows[:, 0]]
    scale = np.sqrt(np.linalg.inv(normal)[:, 2, 2])
    error = scale * np.fmax(scatter, pooled)
    return np.stack([solved[:, 2], solved[:, 2] / error, solved[:, 0], solved[:, 0] + solved[:, 2]])
