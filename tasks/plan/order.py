"""Order of measurement: ABBA over arms, points shuffled with a stored seed, A/A control points by lot."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")
CONTROL_SHARE = 0.05
"""Share of (point, arm) pairs with A/A control processes (design: 5 %)."""


def seed_for(seed: int, *parts: object) -> int:
    """A seed that depends on ``seed`` and ``parts`` only, the same on every machine and Python."""
    text = "/".join(str(p) for p in (seed, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def shuffled(items: Sequence[T], seed: int) -> list[T]:
    """A copy of ``items`` in an order that ``seed`` decides."""
    copy = list(items)
    random.Random(seed).shuffle(copy)
    return copy


def abba(lanes: Sequence[T], blocks: int) -> list[tuple[int, T]]:
    """``(block, lane)`` in measuring order: forward in even blocks, backward in odd ones.

    Over two blocks every lane has the same mean position, so a linear drift cancels between lanes.
    """
    return [(b, lane) for b in range(blocks) for lane in (lanes if b % 2 == 0 else list(reversed(lanes)))]


def control_points(
    point_ids: Mapping[str, Sequence[str]], seed: int, *, arms: int, share: float = CONTROL_SHARE
) -> dict[str, list[str]]:
    """Points that get A/A control processes, by arm: ``share`` of all pairs, over the first ``arms`` arms.

    At least one pair is chosen. Arms without control points are left out. ``arms`` = 0 turns the control off.
    """
    pairs = sum(len(ids) for ids in point_ids.values())
    chosen = list(point_ids)[:arms]
    if not chosen or not pairs:
        return {}
    wanted = math.ceil(share * pairs)
    result = {}
    for i, arm in enumerate(chosen):
        count = wanted // len(chosen) + (1 if i < wanted % len(chosen) else 0)
        lots = shuffled(sorted(point_ids[arm]), seed_for(seed, "control", arm))
        if count:
            result[arm] = lots[:count]
    return result
