"""Samples of one simulated process: the model's time with the noise of leases, processes and samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewatch.tasks.plan.order import seed_for
from tilewatch.tasks.simulate.truth import Truth

WARM_UP_ROUNDS = 3
WARM_UP_RATIO = 1.08
CORRELATION = 0.5
MEMORY_BLOCKS = 6
SLOW_SHARE, SLOW_RATIO = 0.3, 1.03
LEASE_SPREAD = 0.004
"""What separates two leases: everything is faster or slower together."""

Row = dict[str, Any]


def process_ratio(truth: Truth, plan: Mapping[str, Any], point_id: str) -> float:
    """Factor of this process on all its samples of one point: lease, drift, and the process's own luck."""
    lease = np.random.default_rng(seed_for(0, "lease", plan["lease_id"])).normal(0, LEASE_SPREAD)
    drift = truth.drift * plan["block"]
    return math.exp(lease + drift + _own(truth, plan, point_id))


def _own(truth: Truth, plan: Mapping[str, Any], point_id: str) -> float:
    spread = truth.process_spread

    def draw(block: int) -> np.random.Generator:
        who = (plan["build"]["build_id"], plan["experiment"], plan["arm"], plan["role"])
        return np.random.default_rng(seed_for(0, plan["lease_id"], *who, block, point_id))

    here = draw(plan["block"])
    if truth.noise == "heavy_tailed":
        return float(spread * here.standard_t(3))
    if truth.noise == "two_mode":
        return float(spread * here.normal() + math.log(SLOW_RATIO) * (here.random() < SLOW_SHARE))
    if truth.noise == "autoregressive":
        blocks = range(MEMORY_BLOCKS)
        return sum(CORRELATION**back * spread * draw(plan["block"] - back).normal() for back in blocks)
    return float(spread * here.normal())


def sample_rows(
    truth: Truth, plan: Mapping[str, Any], point: Mapping[str, Any], call_ns: float, position: int
) -> list[Row]:
    """Rows of ``samples.jsonl`` for one point, warm-up first; ``position`` is the place of the first one."""
    amount = plan["amount"]
    who = (plan["build"]["build_id"], plan["role"], point["point_id"])
    draw = np.random.default_rng(seed_for(plan["seed"], "samples", *who))
    calls = max(1, math.ceil(amount["min_sample_ns"] / call_ns))
    level_ns = call_ns * process_ratio(truth, plan, point["point_id"])
    rows: list[Row] = []
    kept = discarded = 0
    while kept < amount["samples"]:
        warm_up = len(rows) < WARM_UP_ROUNDS
        throttled = not warm_up and bool(draw.random() < truth.throttled_share)
        may_discard = discarded < amount["discard_budget"]
        factor = math.exp(truth.sample_spread * draw.normal())
        factor *= truth.throttled_ratio if throttled else WARM_UP_RATIO if warm_up else 1.0
        row = _row(point["point_id"], len(rows), position + len(rows), calls, level_ns * factor)
        row |= {"warm_up": warm_up, "throttled": throttled}
        if throttled:
            reason = "throttled" if may_discard else "throttled; kept, budget spent"
            row |= {"discarded": may_discard, "discard_reason": reason}
        discarded += row["discarded"]
        kept += not warm_up and not row["discarded"]
        rows.append(row)
    return rows


def untimed_row(point_id: str, position: int, reason: str) -> Row:
    """The row of a point that has nothing of its own to time."""
    return _row(point_id, 0, position, 1, None) | {"null_reason": reason}


def _row(point_id: str, sample: int, position: int, calls: int, duration_ns: float | None) -> Row:
    rounded = None if duration_ns is None else max(1, round(duration_ns))
    return {
        "point_id": point_id,
        "sample": sample,
        "position": position,
        "calls": calls,
        "interval_ns": None if rounded is None else rounded * calls,
        "duration_ns": rounded,
        "null_reason": None,
        "host_enqueue_ns": None,
        "device_event_ns": None,
        "warm_up": False,
        "discarded": False,
        "discard_reason": None,
        "throttled": False,
    }
