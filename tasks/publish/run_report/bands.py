"""Where the observed tiling changes along a curve, and which cliffs belong to it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

Row = dict[str, Any]

SHOWN = ("base_m", "base_n", "base_k", "stream_k", "used_core_num", "tiling_key")
"""Tiling fields that tell one band from the next, those a person knows best first."""


@dataclass(frozen=True)
class Band:
    """A stretch of the axis with one tiling; ``label`` names what differs from the band before."""

    start: float
    end: float
    label: str


def bands(points: Sequence[Row], alignments: Iterable[Row]) -> list[Band]:
    """Bands of one line from its points (sorted along the axis) and all alignments of its source.

    A band reaches half way (on a logarithmic axis) to its neighbours. Points without an observed tiling
    record belong to none; one single tiling gives no bands.
    """
    observed = {(a["experiment"], a["arm"], a["point_id"]): a for a in alignments if a["status"] == "aligned"}
    found = [(p, observed.get((p["experiment"], p["arm"], p["point_id"]))) for p in points]
    signatures = {_signature(a) for _, a in found if a}
    if len(signatures) < 2:
        return []
    differing = [n for i, n in enumerate(SHOWN) if len({signature[i] for signature in signatures}) > 1]
    result: list[Band] = []
    position, before = 0, None
    for signature, members in groupby(found, key=lambda pair: _signature(pair[1]) if pair[1] else None):
        length = len(list(members))
        if signature is not None:
            values = dict(zip(SHOWN, signature, strict=True))
            name = next((n for n in differing if before and values[n] != before[n]), differing[0])
            result.append(Band(*_edges(points, position, position + length - 1), f"{name} {values[name]}"))
            before = values
        position += length
    return result


def belongs(cliff: Row, experiment: str, curve: str) -> bool:
    """True where ``cliff`` lies on a curve of this chart: its own curve names all that the chart fixes."""
    return bool(cliff["experiment"] == experiment and set(curve.split()) <= set(cliff["curve"].split()))


def _signature(alignment: Row) -> tuple[Any, ...]:
    return tuple(alignment[name] for name in SHOWN)


def _edges(points: Sequence[Row], first: int, last: int) -> tuple[float, float]:
    values = [float(p["axis_value"]) for p in points]
    start = math.sqrt(values[first - 1] * values[first]) if first else values[0] / 1.2
    end = math.sqrt(values[last] * values[last + 1]) if last + 1 < len(values) else values[-1] * 1.2
    return start, end
