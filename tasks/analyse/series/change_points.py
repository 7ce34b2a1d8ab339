"""Change points of many series at once: E-divisive splits in windows, a t test, then merging the weakest.

The method of Matteson and James (2014) in the form of Hunter (Fleming et al. 2023,
doi 10.1145/3578244.3583719).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import special

from tilewatch.tasks.analyse.statistics.limits import ChangePointLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers

_BATCH_VALUES = 4_000_000


@dataclass
class _Piece:
    """A stretch of one series with its best split; positions are absolute."""

    start: int
    stop: int
    split: int = 0
    q: float = -np.inf
    p_value: float = 1.0


@dataclass
class _Window:
    series: int
    pieces: list[_Piece] = field(default_factory=list)
    found: list[int] = field(default_factory=list)


def change_points(series: Sequence[Floats], limits: ChangePointLimits | None = None) -> list[list[int]]:
    """For each series the indexes of the first value after each change, ascending.

    Splits are accepted in overlapping windows at a relaxed p; then the point with the largest p is removed
    until all are under ``max_p_value``, and the smallest step until all exceed ``min_magnitude``.
    """
    limits = limits or ChangePointLimits()
    weak = _weak_points(series, limits.window, _first_pass(limits.max_p_value))
    return [_merge(values, points, limits) for values, points in zip(series, weak, strict=True)]


def _first_pass(p_value: float) -> float:
    """Ten times the final p, less where that would no longer be a probability."""
    if p_value < 0.05:
        return p_value * 10
    return p_value * 2 if p_value < 0.5 else p_value


def _weak_points(series: Sequence[Floats], window: int, max_p: float) -> list[list[int]]:
    """All series in step: each round every unfinished one has the splits of its next window found."""
    starts = [0] * len(series)
    found: list[set[int]] = [set() for _ in series]
    open_series = [s for s, values in enumerate(series) if len(values)]
    while open_series:
        windows = [
            _Window(s, [_Piece(starts[s], min(starts[s] + window, len(series[s])))]) for s in open_series
        ]
        _split(series, windows, max_p)
        for one in windows:
            found[one.series].update(one.found)
            starts[one.series] = max(max(one.found, default=0), starts[one.series] + window // 2)
        open_series = [s for s in open_series if starts[s] < len(series[s])]
    return [sorted(points) for points in found]


def _split(series: Sequence[Floats], windows: list[_Window], max_p: float) -> None:
    """Split the piece of highest Q of each window while its split is significant."""
    fresh = [(one, piece) for one in windows for piece in one.pieces]
    while fresh:
        _find_splits(series, fresh)
        fresh = []
        for one in {id(w): w for w in windows}.values():
            best = max(one.pieces, key=lambda piece: piece.q)
            if not np.isfinite(best.q) or best.p_value > max_p:
                continue
            one.found.append(best.split)
            halves = [_Piece(best.start, best.split), _Piece(best.split, best.stop)]
            place = one.pieces.index(best)
            one.pieces[place : place + 1] = halves
            fresh += [(one, half) for half in halves]
        windows = list({id(one): one for one, _ in fresh}.values())


def _find_splits(series: Sequence[Floats], fresh: list[tuple[_Window, _Piece]]) -> None:
    """Fill in the best split of each piece of two or more values, pieces of equal length together."""
    by_length: dict[int, list[tuple[_Window, _Piece]]] = {}
    for one, piece in fresh:
        if piece.stop - piece.start >= 2:
            by_length.setdefault(piece.stop - piece.start, []).append((one, piece))
    for length, members in by_length.items():
        batch = max(1, _BATCH_VALUES // length**2)
        for first in range(0, len(members), batch):
            some = members[first : first + batch]
            stretch = np.stack([series[w.series][p.start : p.stop] for w, p in some])
            split, q = best_splits(stretch)
            p_values = split_p_values(stretch, split)
            for (_, piece), at, value, p_value in zip(some, split, q, p_values, strict=True):
                piece.split, piece.q, piece.p_value = piece.start + int(at), float(value), float(p_value)


def best_splits(stretch: Floats) -> tuple[Integers, Floats]:
    """Split with the largest E-divisive Q of each row of ``stretch`` [rows, length], and that Q.

    Q(τ, κ) = 2/(n+m) · Σ|x−y| − 2m/((n+m)(n−1)) · Σ|x−x'| − 2n/((n+m)(m−1)) · Σ|y−y'| for x the first n = τ
    values and y the m = κ−τ after them, over all τ < κ.
    """
    length = stretch.shape[1]
    distance = np.abs(stretch[:, :, None] - stretch[:, None, :])
    upper = np.triu(np.ones((length, length)), 1)
    along = np.cumsum(distance * upper, axis=2)
    # within[:, i, j]: sum of distances among values i … j
    within = np.flip(np.cumsum(np.flip(along, axis=1), axis=1), axis=1)
    prefix = within[:, 0, :]
    tau = np.arange(1, length)[:, None]
    kappa = np.arange(2, length + 1)[None, :]
    valid = kappa > tau
    after = within[:, 1:, 1:]
    before = prefix[:, :-1, None]
    between = prefix[:, None, 1:] - before - after
    with np.errstate(divide="ignore", invalid="ignore"):
        of_before = np.where(tau > 1, 2 * (kappa - tau) / kappa / (tau - 1), 0.0)
        of_after = np.where(kappa - tau > 1, 2 * tau / kappa / (kappa - tau - 1), 0.0)
    q = np.where(valid, 2 / kappa * between - of_before * before - of_after * after, -np.inf)
    flat = q.reshape(len(stretch), -1)
    best = flat.argmax(axis=1)
    return (best // (length - 1) + 1).astype(np.int64), flat[np.arange(len(stretch)), best]


def split_p_values(stretch: Floats, split: Integers) -> Floats:
    """Two-sided p of Student's t between the values before and from ``split`` of each row.

    From population variances, as the original does, so p is a little optimistic; 1 for two values.
    """
    length = stretch.shape[1]
    left = np.arange(length) < split[:, None]
    n = np.stack([split, length - split]).astype(np.float64)
    mean = np.stack([(stretch * side).sum(axis=1) for side in (left, ~left)]) / n
    variance = (
        np.stack(
            [
                (((stretch - m[:, None]) ** 2) * side).sum(axis=1)
                for side, m in zip((left, ~left), mean, strict=True)
            ]
        )
        / n
    )
    return _t_p_value(mean, variance, n)


def _t_p_value(mean: Floats, variance: Floats, n: Floats) -> Floats:
    degrees = n[0] + n[1] - 2
    with np.errstate(divide="ignore", invalid="ignore"):
        pooled = ((n[0] - 1) * variance[0] + (n[1] - 1) * variance[1]) / degrees
        t = (mean[0] - mean[1]) / np.sqrt(pooled * (1 / n[0] + 1 / n[1]))
        p = 2 * special.stdtr(degrees, -np.abs(t))
    return np.where(degrees > 0, np.where(np.isnan(p), 1.0, p), 1.0)


def _merge(values: Floats, points: list[int], limits: ChangePointLimits) -> list[int]:
    """Remove the weakest point and look at its neighbours again, until all are strong enough."""
    points = list(points)
    tested = [_test(values, points, place) for place in range(len(points))]
    while points:
        weakest = max(range(len(points)), key=lambda i: tested[i][0])
        if tested[weakest][0] < limits.max_p_value:
            weakest = min(range(len(points)), key=lambda i: tested[i][1])
            if tested[weakest][1] > limits.min_magnitude:
                break
        del points[weakest], tested[weakest]
        # The reference looks again at the two points that follow, not at the one before; its published
        # results depend on it.
        for place in (weakest, weakest + 1):
            if 0 <= place < len(points):
                tested[place] = _test(values, points, place)
    return points


def _test(values: Floats, points: list[int], place: int) -> tuple[float, float]:
    """p and relative magnitude of one point against its neighbours."""
    start = points[place - 1] if place else 0
    stop = points[place + 1] if place + 1 < len(points) else len(values)
    sides = values[start : points[place]], values[points[place] : stop]
    n = np.array([[len(side)] for side in sides], dtype=np.float64)
    mean = np.array([[side.mean()] for side in sides])
    variance = np.array([[side.var()] for side in sides])
    before, after = float(mean[0, 0]), float(mean[1, 0])
    ratios = [abs(after / before - 1) if before else 0.0, abs(before / after - 1) if after else 0.0]
    return float(_t_p_value(mean, variance, n)[0]), max(ratios)
