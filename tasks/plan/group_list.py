"""How a grouped matmul's rows fall on its experts: the group list (counts per expert).

How far real loads are from even: xDeepServe (arXiv 2508.02520) reports a hottest expert of up to 30 times the
mean over all experts of a production deployment, and a fifth of the experts above the mean. ``skewed`` is
milder on a device: with 16 local experts its hottest has 5.2 times their mean, and 16 is the most there is.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from tilewatch.data_contracts.errors import USAGE, TilewatchError

SHAPES = ("uniform", "skewed", "measured")
COLUMNS = ["expert", "rows"]


class LoadFileError(TilewatchError):
    """A file of measured expert loads that cannot be used; the message names file, line and what is wrong."""

    exit_code = USAGE


def group_list(shape: str, m_e: int, experts: int, loads: Sequence[int] = ()) -> list[int]:
    """Rows per expert, ``experts`` counts that sum to ``m_e * experts``.

    ``uniform`` gives every expert ``m_e`` rows. ``skewed`` leaves the last quarter of the experts empty and
    deals the rest in proportion to 1/(rank + 1), the long-tailed load that routing without balancing makes.
    ``measured`` deals them in proportion to ``loads``, rows that an expert had; of another number of loads
    than experts it takes evenly spaced ranks, the hottest and the coldest among them. Dealt by largest
    remainders; the total, and so ``m_e`` as mean, stays the same. Raises ValueError for a shape of no such
    name, or ``measured`` without loads.
    """
    if shape == "uniform":
        return [m_e] * experts
    if shape == "measured":
        if not any(loads):
            raise ValueError("group shape measured needs loads: rows that every expert had")
        return _dealt(m_e * experts, _resampled(loads, experts))
    if shape != "skewed":
        raise ValueError(f"group shape {shape!r} is not one of {', '.join(SHAPES)}")
    busy = max(1, experts - experts // 4)
    return _dealt(m_e * experts, [1 / (rank + 1) for rank in range(busy)]) + [0] * (experts - busy)


def read_loads(path: Path) -> list[int]:
    """Measured rows of every expert, in file order: CSV with header ``expert,rows``. Raises LoadFileError."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise LoadFileError(f"{path}: cannot be read: {error}") from error
    if not rows or [name.strip() for name in rows[0]] != COLUMNS:
        raise LoadFileError(f"{path}:1: the header must be {','.join(COLUMNS)}")
    loads = []
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(COLUMNS) or not row[1].strip().isdecimal():
            raise LoadFileError(f"{path}:{number}: {','.join(row)!r}: needs an expert and its rows, a count")
        loads.append(int(row[1]))
    if not any(loads):
        raise LoadFileError(f"{path}: no expert has rows")
    return loads


def _dealt(total: int, weights: Sequence[float]) -> list[int]:
    """``total`` in whole parts in proportion to ``weights``, the largest remainders rounded up."""
    exact = [total * weight / sum(weights) for weight in weights]
    counts = [math.floor(part) for part in exact]
    by_remainder = sorted(range(len(counts)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


def _resampled(loads: Sequence[int], experts: int) -> list[float]:
    """``loads`` for another number of experts, hottest first; as they are for the same number."""
    if len(loads) == experts:
        return [float(load) for load in loads]
    ranked = sorted(loads, reverse=True)
    steps = max(experts - 1, 1)
    return [float(ranked[place * (len(ranked) - 1) // steps]) for place in range(experts)]
