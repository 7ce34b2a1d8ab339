"""Brings the two sides of a serving comparison onto one row a load and metric: values, refusals, history."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tilewatch.tasks.analyse.comparison.serving_groups import (
    LOAD,
    MODEL,
    ServingSide,
    declared_weights,
    load_words,
)
from tilewatch.tasks.analyse.comparison.serving_values import METRICS
from tilewatch.tasks.analyse.comparison.serving_verdicts import LaunchPairs

Group = Mapping[str, Any]
Slot = tuple[str, str, str]
"""Experiment, base arm, candidate arm."""
Loads = tuple[str | None, str | None]


def matching_loads(base: ServingSide, candidate: ServingSide, slot: Slot) -> list[Loads]:
    """Loads of the two sides that belong together; without a common one all are held against each other."""
    experiment, base_arm, candidate_arm = slot
    left, right = sorted(base.arm(experiment, base_arm)), sorted(candidate.arm(experiment, candidate_arm))
    if left and right and not set(left) & set(right):
        return [(one, other) for one in left for other in right]
    return [
        (load if load in left else None, load if load in right else None) for load in sorted({*left, *right})
    ]


def metric_rows(
    base: ServingSide,
    candidate: ServingSide,
    slot: Slot,
    loads: Loads,
    keys: Sequence[str],
    overrides: Collection[str],
) -> list[dict[str, Any]]:
    """Rows of one pair at one load, one a metric, without statistics.

    Keys: ``slot`` (experiment, base arm, candidate arm), ``loads``, ``groups`` and ``values`` of both sides,
    ``metric``, ``refused`` (``keys`` that differ and are not overridden), ``overrides``, ``missing``.
    """
    experiment, *arms = slot
    groups = [
        side.groups.get((experiment, arm, load)) if load else None
        for side, arm, load in zip((base, candidate), arms, loads, strict=True)
    ]
    differences = _differences(groups, loads, keys)
    refusing = [text for key, text in differences if key not in overrides]
    rows = []
    for metric in METRICS:
        values = [
            side.values.get((experiment, arm, load or "", metric), [])
            for side, arm, load in zip((base, candidate), arms, loads, strict=True)
        ]
        # The server's own step time is compared where a server tells it; the other metrics always.
        if metric == "step_ns" and not any(values):
            continue
        rows.append(
            {
                "slot": slot, "loads": loads, "groups": groups, "metric": metric, "values": values,
                "refused": "; ".join(refusing) or None,
                "overrides": [text for key, text in differences if key in overrides],
                "missing": None if all(values) else _missing(groups, values),
            }
        )  # fmt: skip
    return rows


def _differences(groups: Sequence[Group | None], loads: Loads, keys: Sequence[str]) -> list[tuple[str, str]]:
    left, right = groups
    if left is None or right is None:
        return []
    found = [
        (key, f"{key}: {left[key]} -> {right[key]}")
        for key in keys
        if left[key] != right[key] and not (key == MODEL and declared_weights(left, right))
    ]
    if loads[0] != loads[1]:
        found.append((LOAD, f"load: {load_words(left)} -> {load_words(right)}"))
    return found


def _missing(groups: Sequence[Group | None], values: Sequence[list[float]]) -> str:
    said = []
    for name, group, found in zip(("baseline", "candidate"), groups, values, strict=True):
        if found:
            continue
        if group is None:
            why = "no launch at this load"
        elif group["failed"]:
            why = f"{group['failed']} of {group['launches']} launches failed ({'; '.join(group['failures'])})"
        elif group["unproved"]:
            why = f"the arm was not proved in {group['unproved']} of {group['launches']} launches"
        else:
            why = "its launches give no such number"
        said.append(f"no value in the {name}: {why}")
    return "; ".join(said)


def launch_pairs(
    rows: Sequence[Mapping[str, Any]], base: ServingSide, candidate: ServingSide, history: pa.Table | None
) -> LaunchPairs:
    """The numeric view of ``metric_rows``; ``history`` is the table of ``between_lease_history``."""
    pooled = _pooled(base, candidate)
    archived = _history(history)
    between, spread, degrees = [], [], []
    for row in rows:
        leases = [set(group["leases"]) if group else set() for group in row["groups"]]
        between.append(all(leases) and leases[0] != leases[1])
        found = [
            archived.get((g["device_class"], g["method_hash"], row["slot"][0], arm, load, row["metric"]))
            for g, arm, load in zip(row["groups"], row["slot"][1:], row["loads"], strict=True) if g
        ]  # fmt: skip
        known = [one for one in found if one is not None]
        spread.append(max((s for s, _ in known), default=math.nan))
        degrees.append(min((d for _, d in known), default=math.nan))
    return LaunchPairs(
        base=[row["values"][0] for row in rows],
        candidate=[row["values"][1] for row in rows],
        more_is_better=np.array([not row["metric"].endswith("_ns") for row in rows], dtype=bool),
        between=np.array(between, dtype=bool),
        arm_spread=np.array([pooled.get((r["slot"][0], r["loads"][1], r["metric"]), math.nan) for r in rows]),
        lease_spread=np.array(spread, dtype=float),
        lease_degrees=np.array(degrees, dtype=float),
        excluded=np.array([bool(row["refused"] or row["missing"]) for row in rows], dtype=bool),
    )


def _pooled(base: ServingSide, candidate: ServingSide) -> dict[tuple[str, str, str], float]:
    """Standard deviation of ln(launch value) within arms, pooled over arms and sides, by load and metric."""
    sums: dict[tuple[str, str, str], list[float]] = {}
    sides = [base] if base is candidate else [base, candidate]
    for side in sides:
        for (experiment, _, load, metric), values in side.values.items():
            logs = np.log(values)
            entry = sums.setdefault((experiment, load, metric), [0.0, 0.0])
            entry[0] += float(((logs - logs.mean()) ** 2).sum())
            entry[1] += len(logs) - 1
    return {key: math.sqrt(square / degrees) for key, (square, degrees) in sums.items() if degrees}


def _history(table: pa.Table | None) -> dict[tuple[str, ...], tuple[float, float]]:
    names = ("device_class", "method_hash", "experiment", "arm", "load_id", "metric")
    rows = table.to_pylist() if table is not None else []
    return {tuple(row[n] for n in names): (row["spread_log"], row["degrees"]) for row in rows}
