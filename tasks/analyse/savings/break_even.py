"""Break-even as a set of M intervals: where INT8 wins, loses or cannot be told apart, and their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WORDS = {
    "int8_wins": "INT8 wins",
    "bf16_wins": "BF16 wins",
    "no_difference": "no difference",
    "unknown": "unknown",
}


@dataclass(frozen=True)
class Interval:
    """Neighbouring sampled axis values with one outcome, both ends included."""

    outcome: str
    first: int
    last: int


def intervals(axis: Sequence[int], outcomes: Sequence[str]) -> list[Interval]:
    """Merge neighbouring samples of equal outcome; ``axis`` rises. Nothing is said between two intervals."""
    merged: list[Interval] = []
    for value, outcome in zip(axis, outcomes, strict=True):
        if merged and merged[-1].outcome == outcome:
            merged[-1] = Interval(outcome, merged[-1].first, value)
        else:
            merged.append(Interval(outcome, value, value))
    return merged


def sentence(
    axis: Sequence[int], outcomes: Sequence[str], cliffs: Sequence[tuple[str, int, int]] = (), name: str = "M"
) -> str | None:
    """The intervals in words, or None where no outcome is known.

    ``cliffs`` are (arm, before, after); one that lies between two intervals is named as their bound.
    """
    found = intervals(axis, outcomes)
    if all(one.outcome == "unknown" for one in found):
        return None
    parts = []
    for place, one in enumerate(found):
        ends = f"{one.first}" if one.first == one.last else f"{one.first}–{one.last}"
        text = f"{WORDS[one.outcome]} {name} {ends}"
        if place + 1 < len(found):
            bounds = [
                f"cliff {before}→{after} of {arm}"
                for arm, before, after in cliffs
                if one.last <= before and after <= found[place + 1].first
            ]
            text += f" ({', '.join(bounds)})" if bounds else ""
        parts.append(text)
    return "; ".join(parts)
