"""Perfherder's t scan of many series at once: a weighted t statistic at every position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewatch.tasks.analyse.statistics.limits import TScanLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats, Integers


def t_changes(series: Sequence[Floats], limits: TScanLimits | None = None) -> list[list[int]]:
    """For each series the positions whose t is over the threshold and not under a neighbour's.

    A position needs ``min_back`` values before it and ``fore`` from it on.
    """
    limits = limits or TScanLimits()
    if not series:
        return []
    scores, lengths = t_scores(series, limits)
    positions = np.arange(scores.shape[1])
    enough = (positions >= limits.min_back) & (lengths[:, None] - positions >= limits.fore)
    before = np.pad(scores, ((0, 0), (1, 0)))[:, :-1]
    after = np.pad(scores, ((0, 0), (0, 1)))[:, 1:]
    peak = enough & (scores > limits.threshold) & (before <= scores) & (after <= scores)
    return [np.flatnonzero(row).tolist() for row in peak]


def t_scores(series: Sequence[Floats], limits: TScanLimits) -> tuple[Floats, Integers]:
    """|t| at each position [series, position], 0 beyond a series' end and at its first value; the lengths.

    Back window: up to ``min_back`` values, growing to ``max_back`` with the distance from the last position
    over the threshold. Weights of both means fall linearly with the distance from the position; the variance
    is taken around the weighted mean.
    """
    lengths = np.array([len(values) for values in series], dtype=np.int64)
    longest = int(lengths.max(initial=0))
    padded = np.full((len(series), limits.max_back + longest + limits.fore), np.nan)
    for row, values in enumerate(series):
        padded[row, limits.max_back : limits.max_back + len(values)] = values
    scores = np.zeros((len(series), longest))
    since = np.zeros(len(series), dtype=np.int64)
    for position in range(1, longest):
        here = limits.max_back + position
        width = np.clip(since, limits.min_back, limits.max_back)
        back = padded[:, here - limits.max_back : here][:, ::-1]
        fore = padded[:, here : here + limits.fore]
        scores[:, position] = _score(_window(back, width), _window(fore, np.full(len(series), limits.fore)))
        since = np.where(scores[:, position] > limits.threshold, 0, since + 1)
    return scores, lengths


def _window(values: Floats, width: Integers) -> tuple[Floats, Floats, Floats]:
    """Weighted mean, variance around it and count of the first ``width`` present values of each row."""
    inside = (np.arange(values.shape[1]) < width[:, None]) & ~np.isnan(values)
    count = inside.sum(axis=1).astype(np.float64)
    weights = np.where(inside, count[:, None] - np.arange(values.shape[1]), 0.0)
    data = np.where(inside, values, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (data * weights).sum(axis=1) / weights.sum(axis=1)
        deviation = np.where(inside, data - mean[:, None], 0.0)
        variance = np.where(count > 1, (deviation**2).sum(axis=1) / (count - 1), 0.0)
    return mean, variance, count


def _score(back: tuple[Floats, Floats, Floats], fore: tuple[Floats, Floats, Floats]) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        delta = fore[0] - back[0]
        # Means of equal values differ in the last bits, as their weights do.
        delta = np.where(np.abs(delta) <= 8 * np.finfo(np.float64).eps * np.abs(back[0]), 0.0, delta)
        score = np.abs(delta / np.sqrt(back[1] / back[2] + fore[1] / fore[2]))
    return np.where((delta == 0) | np.isnan(score), 0.0, score)
