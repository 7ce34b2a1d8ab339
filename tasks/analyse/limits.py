"""Every constant of the analysis: one frozen dataclass a detector, a reason beside each field."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

ANALYSIS_VERSION = 1
"""Raised when the same tables would give other verdicts; stored on every derived row."""


@dataclass(frozen=True)
class ComparisonLimits:
    """When two point values differ, when they are the same, and when more processes are needed."""

    alpha: float = 0.05
    """False discovery rate over the table, and one minus the confidence of every interval (design 8)."""
    relative_floor: float = 0.02
    """Smallest effect worth a verdict: with it Welch on process medians calls no A/A pair different."""
    absolute_floor_ns: float = 100.0
    """Five 20 ns device ticks; percentages mean nothing near the timer's resolution."""
    timer_tick_ns: float = 20.0
    """Device tick; its uniform rounding error bounds the variance of process values from below."""
    spread_multiple: float = 3.0
    """Effect floor in own between-lease A/A spreads (design 8)."""
    spread_confidence: float = 0.8
    """The floor uses this upper bound of the spread: few leases know it badly, and points share a lease."""
    unknown_lease_floor: float = 0.22
    """Floor between leases without history: 99.9 % of a public near-A/A pair of 35,700 points lie within."""
    min_processes: int = 5
    """Fresh processes a side before anything but UNDECIDED is said (design 5)."""
    max_processes: int = 20
    """Cap up to which UNDECIDED asks for more."""
    power: float = 0.8
    """Chance to decide that the number of extra processes aims at."""


@dataclass(frozen=True)
class ControlLimits:
    """When the A/A control of a sweep says enough, and when it voids the sweep."""

    min_pairs: int = 20
    """Under it the table says insufficient (design 5)."""
    max_false_rate: float = 0.05
    """Above it the sweep is void: the verdicts claim the same rate."""


@dataclass(frozen=True)
class SpreadLimits:
    """How the between-lease A/A spread is estimated from archived runs."""

    min_leases: int = 2
    """One lease has no spread between leases."""
    robust_from: int = 8
    """From here on the median absolute deviation; below it is often 0, so the standard deviation is used."""
    prior_degrees: float = 4.0
    """Weight, in leases, of the experiment's pooled spread against a point's own few leases."""


def limits_hash(*limits: Any) -> str:
    """16 hex digits over the names and values of frozen limit dataclasses, with ANALYSIS_VERSION."""
    body = {type(one).__name__: asdict(one) for one in limits}
    text = json.dumps({"analysis_version": ANALYSIS_VERSION, **body}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
