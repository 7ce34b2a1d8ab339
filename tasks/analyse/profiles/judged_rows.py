"""The columns of a verdict on a row, in the words of the level that decided it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewatch.tasks.analyse.comparison.verdicts import Judged
from tilewatch.tasks.analyse.profiles.values import Floats
from tilewatch.tasks.analyse.profiles.verdicts import Level


def verdict_columns(
    judged: Judged, row: int, level: Level, counts: tuple[int, int], interval: tuple[Floats, Floats]
) -> dict[str, Any]:
    """Verdict, reason, ratio with ``interval``, q, floor and replicates of one row."""
    low, high = interval
    reason = str(judged.reason[row])
    return {
        "verdict": str(judged.verdict[row]),
        "verdict_reason": f"{reason}; {level.sentence.split(',')[0].split(';')[0]}" if reason else None,
        "ratio": number(math.exp(judged.test.difference[row])),
        "ratio_low": number(low[row]),
        "ratio_high": number(high[row]),
        "q_value": number(judged.q_value[row]),
        "floor_ratio": number(math.exp(judged.floor_log[row])),
        "floor_reason": str(judged.floor_reason[row]),
        "base_replicates": counts[0],
        "candidate_replicates": counts[1],
    }


def number(value: float) -> float | None:
    """``value`` as a float; None where it is not a finite number."""
    return float(value) if np.isfinite(value) else None


def refusal(reason: str) -> dict[str, Any]:
    """Columns of a row that gets no verdict since ``reason`` must be equal and is not."""
    return {
        "verdict": "UNDECIDED",
        "verdict_reason": "not comparable: what must be equal is not",
        "refused": reason,
    }
