"""Every constant of the analysis: one frozen dataclass a detector, a reason beside each field."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

ANALYSIS_VERSION = 3
"""Raised when the same tables would give other verdicts; stored on every derived row."""


@dataclass(frozen=True)
class ComparisonLimits:
    """When two point values differ, when they are the same, and when more processes are needed."""

    alpha: float = 0.05
    """False discovery rate over the table, and one minus the confidence of every interval (design 8)."""
    relative_floor: float = 0.02
    """Smallest effect worth a verdict: with it Welch on process medians calls no A/A pair different."""
    same_within: float = 0.02
    """What a user calls the same (``--same-within``): SAME is an interval within it, whatever the noise."""
    absolute_floor_ns: float = 100.0
    """Five 20 ns device ticks; percentages mean nothing near the timer's resolution."""
    timer_tick_ns: float = 20.0
    """Device tick; its uniform rounding error bounds the variance of process values from below."""
    spread_multiple: float = 3.0
    """Effect floor between leases in A/A: the scatter of the difference of two identical leases."""
    unknown_lease_floor: float = 0.22
    """Floor between leases without history: 99.9 % of a public near-A/A pair of 35,700 points lie within."""
    min_processes: int = 5
    """Fresh processes a side before anything but UNDECIDED is said (design 5)."""
    max_processes: int = 20
    """Cap up to which UNDECIDED asks for more."""
    power: float = 0.8
    """Chance to decide that the number of extra processes aims at."""


@dataclass(frozen=True)
class RobustLimits:
    """When a process is held at a fence instead of being believed."""

    fence_scales: float = 4.0
    """Robust standard deviations: quiet noise is never touched, so nothing is lost where nothing stalls."""
    least_fence: float = 0.02
    """No deviation under the effect floor of comparisons is a stall, however quiet the rest is."""


@dataclass(frozen=True)
class ModerationLimits:
    """How far the scatter of one point learns from the other points of its table."""

    most_prior: float = 4.0
    """Degrees of freedom lent at most: the own ones of five processes a side are about eight."""
    fewest_rows: int = 10
    """With fewer rows the prior itself is chance."""


@dataclass(frozen=True)
class AnchorLimits:
    """When the drift of the anchor kernels is divided out of a comparison between leases."""

    fewest: int = 5
    """Anchors that both sides measured; the median of fewer moves with one of them."""
    most_drift: float = 0.22
    """Larger than what leases make of 99.9 % of a public near-A/A pair: then the build changed them."""


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
    fewest_points: int = 5
    """Points that a lease's common shift is the median of."""
    robust_from: int = 8
    """From here on the median absolute deviation; below it is often 0, so the standard deviation is used."""
    prior_degrees: float = 4.0
    """Weight, in leases, of the experiment's pooled spread against a point's own few leases."""


@dataclass(frozen=True)
class CliffLimits:
    """When a step along an axis is a cliff, and of which class."""

    deviations: float = 5.0
    """Median absolute deviations that the one-step ratio must leave the local trend by (design 8)."""
    relative_floor: float = 0.02
    """The effect floor of comparisons holds for steps too."""
    absolute_floor_ns: float = 100.0
    """As in comparisons: five 20 ns device ticks."""
    certain_rise: float = 0.15
    """Enough by itself: the scatter of a comb is the comb. Also the floor where a point has one value, since
    it shows no noise (label rule of the public reference triples)."""
    false_curves: float = 0.01
    """Share of curves without a cliff that may show one by chance, whatever their length: each step is judged
    at this share divided by the number of steps (Bonferroni)."""
    inflation: float = 1.3
    """An excess scatters by this much more than the step does: a noisy point is also in the trend beside it.
    By simulation of flat, rising and bent curves of 21 and 256 points (tests/benchmarks/bench_cliffs.py)."""
    dense_inflation: float = 1.45
    """The same where the plateaus on both sides are long enough to show what two points alone may not."""
    reach: int = 8
    """Points on either side that a step between plateaus is fitted to."""
    neighbours: int = 2
    """Steps on either side that make the local trend; more would reach over the next tile boundary."""
    most_neighbours: int = 4
    """Steps on either side at most, where the nearest together are narrower than the step itself."""
    remaining: float = 0.5
    """Share of the rise that must remain at the next aligned value: step; less: comb or spike."""
    alignment: int = 16
    """Rows of a cube fractal: the next multiple is where a comb is back on its base line."""
    comb_teeth: int = 2
    """Returning rises of one curve from which on it is a comb, not a spike."""


@dataclass(frozen=True)
class LedgerLimits:
    """Half width of the no-difference band around a net saving."""

    alpha: float = 0.05
    """One minus the confidence of the band by process values."""
    relative_floor: float = 0.02
    """Least half width as a share of the BF16 time: the effect floor of comparisons."""
    absolute_floor_ns: float = 100.0
    """Least half width: five 20 ns device ticks."""


@dataclass(frozen=True)
class ServingLimits:
    """When two arms (or builds) of experiment E differ; the unit is the launch, its requests go with it."""

    alpha: float = 0.05
    """False discovery rate over the table, and one minus the confidence of every interval (design 8)."""
    relative_floor: float = 0.005
    """Smallest effect worth a verdict: an absolute gate with 2 % slack cannot see it (design 8)."""
    same_within: float = 0.01
    """What a user calls the same (``--same-within``): SAME is an interval within it, whatever the noise."""
    spread_multiple: float = 3.0
    """Effect floor in standard errors of two identical arms (design 8)."""
    min_launches: int = 5
    """Fresh servers a side before anything but UNDECIDED is said (design 5)."""
    max_launches: int = 20
    """Cap up to which UNDECIDED asks for more."""
    power: float = 0.8
    """Chance to decide that the detectable ratio and the number of extra launches are stated for."""
    resamples: int = 20_000
    """Bootstrap draws: five launches need the 0.1 % tail of the distribution, which is 20 draws."""
    seed: int = 20_250
    """Seed of the draws, so that the same tables give the same interval."""
    acceptance_tolerance: float = 0.005
    """TPOT goes with one over the acceptance length: beyond the floor above, TPOT compares two workloads."""


@dataclass(frozen=True)
class ChangePointLimits:
    """E-divisive with t test and merge, as Hunter and Otava do it (Fleming et al. 2023)."""

    window: int = 50
    """Values a window; windows overlap by half (Otava's library default)."""
    max_p_value: float = 0.001
    """Largest p of a point that is kept (Otava's default)."""
    min_magnitude: float = 0.02
    """Smallest relative step that is kept: without it 8.5 % of unchanged Gaussian series show a point."""


@dataclass(frozen=True)
class TScanLimits:
    """Perfherder's scan: a weighted t statistic at every position."""

    min_back: int = 12
    """Earlier values that a position needs."""
    max_back: int = 24
    """Earlier values that are looked at most; the window grows with the distance from the last change."""
    fore: int = 12
    """Values from the position on that it needs."""
    threshold: float = 7.0
    """t beyond which a local maximum is a change; none in independent noise, 3.7 % under AR(0.5)."""


@dataclass(frozen=True)
class SeriesLimits:
    """Which detector speaks when over the builds of one segment."""

    fence_deltas: int = 30
    """Most recent deltas that make the fence (rustc-perf; more would hold real changes)."""
    fence_multiple: float = 3.0
    """Interquartile ranges above the third quartile of the deltas (the code of rustc-perf)."""
    min_deltas: int = 8
    """With fewer deltas quartiles mean nothing: the archived A/A spread alone makes the fence."""
    relative_floor: float = 0.02
    """The effect floor of comparisons."""
    spread_multiple: float = 3.0
    """Fence in own between-lease A/A spreads."""
    spread_confidence: float = 0.8
    """The fence uses this upper bound of the spread: few leases know it badly."""
    long_from: int = 24
    """Values of a segment from which on the change point detectors replace the fence."""
    agreement: int = 2
    """Positions within which t scan and E-divisive must agree on a step."""


def limits_hash(*limits: Any) -> str:
    """16 hex digits over the names and values of frozen limit dataclasses, with ANALYSIS_VERSION."""
    body = {type(one).__name__: asdict(one) for one in limits}
    text = json.dumps({"analysis_version": ANALYSIS_VERSION, **body}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
