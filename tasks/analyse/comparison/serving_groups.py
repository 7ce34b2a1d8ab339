"""What each arm brings at each load: its launches, keys, failures, acceptance and launch values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewatch.tasks.analyse.comparison.serving_values import TIMING, ServingTables, launch_values
from tilewatch.tasks.sql import sql

Key = tuple[str, str, str]
"""Experiment, arm, load_id."""

MODEL = "model"
KEYS = ("device", "device_class", "agent", "evidence", "method_hash", "server_kind", MODEL)
"""Columns of ``launches`` whose difference refuses a pair unless it is overridden; the load pairs rows."""

LOAD = "load"
PLAN = "plan_hash"
OVERRIDABLE = (*KEYS, LOAD, PLAN)
"""Every key whose difference refuses a pair unless it is overridden; the plan only between builds."""

_GROUPS = """
SELECT experiment, arm, load_id, {keys},
       string_agg(DISTINCT plan_hash, '|' ORDER BY plan_hash) AS plan_hash,
       list_sort(list(DISTINCT run_id)) AS run_ids, list_sort(list(DISTINCT lease_id)) AS leases,
       count(*) AS launches, count(*) FILTER (WHERE status <> 'complete') AS failed,
       count(*) FILTER (WHERE status = 'complete' AND NOT coalesce(arm_proved, true)) AS unproved,
       list_sort(list(DISTINCT coalesce(failure_stage, 'unknown') || ': ' || coalesce(failure_reason, '–'))
           FILTER (WHERE status <> 'complete')) AS failures,
       avg(acceptance_length) FILTER (WHERE status = 'complete') AS acceptance_length,
       list_sort(list_distinct(flatten(list(forced_differences)))) AS forced,
       any_value(input_tokens) AS input_tokens, any_value(output_tokens) AS output_tokens,
       any_value(prompts) AS prompts, any_value(max_concurrency) AS max_concurrency,
       any_value(request_rate) AS request_rate
FROM launches WHERE role = $1
GROUP BY ALL ORDER BY experiment, arm, load_id
"""

_LISTS = """
SELECT experiment, arm, load_id, metric, list(value ORDER BY value, capture_id) AS "values"
FROM launch_values GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True)
class ServingSide:
    """One side of a comparison: ``groups`` by (experiment, arm, load), launch values by that and metric."""

    groups: Mapping[Key, Mapping[str, Any]]
    values: Mapping[tuple[str, str, str, str], list[float]]

    def arm(self, experiment: str, arm: str) -> dict[str, Mapping[str, Any]]:
        """Groups of one arm by load."""
        return {load: g for (e, a, load), g in self.groups.items() if (e, a) == (experiment, arm)}


def serving_side(tables: ServingTables) -> ServingSide:
    """Everything that the timing launches of ``tables`` bring to a comparison."""
    keys = ", ".join(f"string_agg(DISTINCT {k}, '|' ORDER BY {k}) AS {k}" for k in KEYS)
    rows = sql(_GROUPS.format(keys=keys), {"launches": tables.launches}, [TIMING]).to_pylist()
    lists = sql(_LISTS, {"launch_values": launch_values(tables)}).to_pylist()
    return ServingSide(
        {(r["experiment"], r["arm"], r["load_id"]): r for r in rows},
        {(r["experiment"], r["arm"], r["load_id"], r["metric"]): r["values"] for r in lists},
    )


def declared_weights(left: Mapping[str, Any], right: Mapping[str, Any]) -> str | None:
    """``a -> b`` where two arms of one plan name different models: the weights that the plan gives each.

    A shape (JSON) is no name: where that differs, another model was served.
    """
    names = left["model"], right["model"]
    if left["plan_hash"] != right["plan_hash"] or left["arm"] == right["arm"] or names[0] == names[1]:
        return None
    if any(name is None or name.startswith("{") for name in names):
        return None
    return f"{names[0]} -> {names[1]}"


def load_words(group: Mapping[str, Any]) -> str:
    """The load as people say it: ``8000 in, 1000 out, 160 prompts, concurrency 160``."""
    parts = [
        f"{group['input_tokens']} in", f"{group['output_tokens']} out", f"{group['prompts']} prompts",
        f"concurrency {limit}" if (limit := group["max_concurrency"]) is not None else "no concurrency limit",
    ]  # fmt: skip
    if group["request_rate"] is not None:
        parts.append(f"{group['request_rate']:g} requests/s")
    return ", ".join(parts)
