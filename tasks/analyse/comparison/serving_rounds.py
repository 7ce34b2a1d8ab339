"""Two builds by rounds of a serving client that others ran: the unit is the round, the decision that of E.

A round is one run of the client with one configuration. Rounds of a side are replicates; what differs
between the two sittings beside the build is in no interval, which the sentence says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tilewatch.data_contracts.errors import USAGE, TilewatchError
from tilewatch.tasks.analyse.comparison.serving_verdicts import LaunchPairs, judge_serving
from tilewatch.tasks.analyse.statistics.limits import ServingLimits
from tilewatch.tasks.analyse.statistics.process_values import Floats

METRICS = (
    ("mean_ttft_ms", "TTFT mean, ms", False), ("median_ttft_ms", "TTFT median, ms", False),
    ("p99_ttft_ms", "TTFT p99, ms", False), ("mean_tpot_ms", "TPOT mean, ms", False),
    ("median_tpot_ms", "TPOT median, ms", False), ("p99_tpot_ms", "TPOT p99, ms", False),
    ("request_throughput", "requests/s", True), ("output_throughput", "output tokens/s", True),
)  # fmt: skip
"""Number of a result, how it is shown, and whether more of it is better."""

_LENGTHS = ("input length", "output length")
_LENGTH_SLACK = 0.02
"""Prompts are drawn at random: mean lengths within 2 % are one configuration."""
_CLIENT = ("backend",)
"""The interface of the client, which two versions of one server may call differently: shown, not refused."""

Configuration = Mapping[str, str]


class RoundsDifferError(TilewatchError):
    """Rounds that cannot be compared; the message names what differs."""

    exit_code = USAGE


@dataclass(frozen=True)
class RoundsCompared:
    """One row a configuration and metric, and what a reader has to know of them in one sentence."""

    rows: pa.Table
    sentence: str


def compare_rounds(
    base: pa.Table, candidate: pa.Table, names: tuple[str, str], limits: ServingLimits | None = None
) -> RoundsCompared:
    """Verdicts of two tables of contract ``serving_results``, one configuration at a time.

    Raises RoundsDifferError where no configuration of one side is one of the other, naming what differs.
    """
    sides = _by_configuration(base), _by_configuration(candidate)
    pairs = [(one, two) for one in sides[0] for two in sides[1] if not _differences(one[0], two[0])]
    if not pairs:
        raise RoundsDifferError(_why_not(sides, names), "Compare rounds of one configuration")
    judged = [row for one, two in pairs for row in _rows(one, two)]
    result = judge_serving(_launch_pairs(judged), limits or ServingLimits())
    rows = [
        {
            "verdict": str(result.verdict[i]),
            "metric": row["label"],
            "base_value": float(np.exp(np.mean(np.log(row["base"])))),
            "candidate_value": float(np.exp(np.mean(np.log(row["candidate"])))),
            "ratio": _ratio(result.test.welch.difference[i]),
            "ratio_low": _ratio(result.test.low[i]),
            "ratio_high": _ratio(result.test.high[i]),
            "q_value": float(result.q_value[i]),
            "floor_ratio": _ratio(result.floor[i]),
            "base_rounds": len(row["base"]),
            "candidate_rounds": len(row["candidate"]),
            "verdict_reason": str(result.reason[i]).replace("launches", "rounds").replace("launch", "round"),
            "configuration": row["configuration"],
        }
        for i, row in enumerate(judged)
    ]
    left = sum(len(side) for side in sides) - len({id(c) for pair in pairs for c in pair})
    sentence = (
        f"{names[1]} against {names[0]} by rounds of the client: the rounds of a side are one sitting each, "
        "so what differs between the sittings beside the build is in no interval"
    )
    return RoundsCompared(
        pa.Table.from_pylist(rows),
        f"{sentence}; {left} configurations are on one side only" if left else sentence,
    )


_Side = list[tuple[Configuration, list[dict[str, float]]]]


def _by_configuration(results: pa.Table) -> _Side:
    """Rounds by configuration; lengths are drawn anew each round, those of the first round stand for all."""
    groups: dict[tuple[tuple[str, str], ...], list[dict[str, Any]]] = defaultdict(list)
    for row in results.select(["configuration", "metrics"]).to_pylist():
        told = dict(row["configuration"] or [])
        fixed = tuple(sorted((k, v) for k, v in told.items() if k not in _LENGTHS))
        groups[fixed].append({"told": told, "metrics": dict(row["metrics"] or [])})
    return [(rounds[0]["told"], [r["metrics"] for r in rounds]) for rounds in groups.values()]


def _differences(base: Configuration, candidate: Configuration) -> list[str]:
    """What differs, in words; a key that one side does not say differs too."""
    found = []
    for key in sorted({*base, *candidate} - {*_CLIENT}):
        one, two = base.get(key), candidate.get(key)
        if one != two and not (key in _LENGTHS and one and two and _near(float(one), float(two))):
            found.append(f"{key}: {one or 'not said'} against {two or 'not said'}")
    return found


def _near(one: float, two: float) -> bool:
    return abs(one - two) <= _LENGTH_SLACK * max(one, two)


def _why_not(sides: tuple[_Side, _Side], names: tuple[str, str]) -> str:
    for name, side in zip(names, sides, strict=True):
        if not side:
            return f"{name} has no result of a serving client"
    closest = min((_differences(one[0], two[0]) for one in sides[0] for two in sides[1]), key=len)
    return f"the rounds of {names[0]} and {names[1]} are of different configurations: {'; '.join(closest)}"


def _rows(
    base: tuple[Configuration, list[dict[str, float]]],
    candidate: tuple[Configuration, list[dict[str, float]]],
) -> list[dict[str, Any]]:
    rows = []
    for key, label, more in METRICS:
        values = [[r[key] for r in side[1] if r.get(key, 0) > 0] for side in (base, candidate)]
        if all(values):
            told = ", ".join(f"{k} {v}" for k, v in sorted(base[0].items()))
            rows.append(
                {
                    "label": label,
                    "more": more,
                    "base": values[0],
                    "candidate": values[1],
                    "configuration": told,
                }
            )
    return rows


def _launch_pairs(rows: Sequence[Mapping[str, Any]]) -> LaunchPairs:
    count = len(rows)
    unknown = np.full(count, np.nan)
    spread = np.array([_pooled([row["base"], row["candidate"]]) for row in rows])
    never = np.zeros(count, dtype=np.bool_)
    more = np.array([row["more"] for row in rows], dtype=np.bool_)
    sides = [row["base"] for row in rows], [row["candidate"] for row in rows]
    return LaunchPairs(*sides, more, never, spread, unknown, unknown, never)


def _pooled(sides: Sequence[Sequence[float]]) -> float:
    """Standard deviation of ln(round) within the sides; NaN where none has two rounds."""
    logs: list[Floats] = [np.log(side) for side in sides]
    degrees = sum(len(side) - 1 for side in logs)
    squares = sum(float(np.sum((side - side.mean()) ** 2)) for side in logs)
    return float(np.sqrt(squares / degrees)) if degrees else float("nan")


def _ratio(log: Any) -> float | None:
    return None if np.isnan(log) else float(np.exp(log))
