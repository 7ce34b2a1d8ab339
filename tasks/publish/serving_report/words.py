"""Experiment E in sentences: whether W8A8 paid off here, where the time went, what to know first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tilewatch.tasks.publish.display import NOTHING, count, digits, duration, ratio
from tilewatch.tasks.publish.run_report.environment import mixed_builds
from tilewatch.tasks.publish.run_report.headline import CPU_BANNER, SIMULATED_BANNER
from tilewatch.tasks.publish.serving_report.content import ServingContent
from tilewatch.tasks.publish.summary import VERDICTS
from tilewatch.tasks.sql import sql

Row = Mapping[str, Any]
METRIC_NAMES = {
    "ttft_ns": "TTFT",
    "tpot_ns": "TPOT",
    "output_token_per_s": "output throughput",
    "request_per_s": "request throughput",
    "step_ns": "step time",
    "itl_ns": "ITL",
    "e2e_ns": "E2E",
}
_LARGEST = 3
"""Categories that the sentence names; the chart has all."""


def metric_name(metric: str) -> str:
    """A metric as the field writes it."""
    return METRIC_NAMES.get(metric, metric)


def metric_value(metric: str, value: float | None) -> str:
    """A value in the unit of its metric: ``12.3 ms``, ``3100 token/s``."""
    if value is None:
        return NOTHING
    if metric.endswith("_ns"):
        return duration(value)
    return f"{digits(value)} {metric.split('_')[0].replace('output', 'token')}/s"


def verdict_sentence(content: ServingContent) -> str:
    """Whether W8A8 paid off against BF16, by how much, measured where, and which operators moved."""
    rows = {
        row["metric"]: row
        for row in content.comparisons.to_pylist()
        if (row["base_arm"], row["candidate_arm"]) == (content.base_arm, content.candidate_arm)
    }
    devices = ", ".join(sorted(set(content.launches["device_class"].to_pylist()))) or "no device"
    where = f"{'simulated' if content.simulated else 'measured'} on {devices}"
    tpot = rows.get("tpot_ns")
    if tpot is None:
        arms = f"{content.candidate_arm} and {content.base_arm}"
        return f"W8A8 was not compared with BF16: {arms} were not both launched, {where}."
    said = _paid_off(tpot)
    if tpot["ratio"] is None:
        return f"{said}, {where}."
    throughput = rows.get("output_token_per_s")
    more = f", output throughput {ratio(throughput['ratio'])}" if throughput and throughput["ratio"] else ""
    values = f"{duration(tpot['base_value'])} → {duration(tpot['candidate_value'])}"
    if tpot["ratio_low"] is not None:
        values += f", interval {ratio(tpot['ratio_low'])} to {ratio(tpot['ratio_high'])}"
    change = f"TPOT {ratio(tpot['ratio'])} against {content.base_arm} ({values})"
    return f"{said}: {change}{more}, {where}; {_where(content)}."


def builds_sentence(comparisons: pa.Table) -> str:
    """The worst row of two builds compared, and how many rows came to each verdict."""
    rows = sorted(
        comparisons.to_pylist(),
        key=lambda r: (VERDICTS.index(r["verdict"]), -abs(math.log(r["ratio"])) if r["ratio"] else 0.0),
    )
    if not rows:
        return "Nothing was served by both builds."
    worst = rows[0]
    counted = Counter(row["verdict"] for row in rows)
    counts = ", ".join(f"{counted[verdict]} {verdict}" for verdict in VERDICTS if counted[verdict])
    what = f"{worst['candidate_arm']} {metric_name(worst['metric'])}"
    how = f" {ratio(worst['ratio'])}" if worst["ratio"] else ""
    named = f"{worst['candidate']} against {worst['baseline']}"
    return f"{named}: {what}{how} {worst['verdict']}, {worst['verdict_reason']} ({counts})."


def _paid_off(row: Row) -> str:
    arm, launches = row["candidate_arm"], min(row["base_launches"], row["candidate_launches"])
    match row["verdict"]:
        case "FASTER":
            return f"W8A8 ({arm}) paid off here"
        case "SLOWER":
            return f"W8A8 ({arm}) did not pay off here"
        case "SAME":
            return f"W8A8 ({arm}) made no difference here beyond the floor of {ratio(row['floor_ratio'])}"
        case "UNDECIDED" if row["refused"]:
            return f"Whether W8A8 ({arm}) paid off cannot be said: {row['verdict_reason']}"
        case "UNDECIDED":
            return f"Whether W8A8 ({arm}) paid off here is not decided by {count(launches, 'launch')} an arm"
    return f"Whether W8A8 ({arm}) paid off cannot be said: {row['verdict_reason']}"


def _where(content: ServingContent) -> str:
    """Which categories of a profiled decode step moved most between the two arms."""
    savings = [
        row
        for row in content.savings.to_pylist()
        if (row["base_arm"], row["candidate_arm"]) == (content.base_arm, content.candidate_arm)
    ]
    if not savings or savings[0]["base_step_ns"] is None or savings[0]["candidate_step_ns"] is None:
        return "where the time went is not known: no decode step was profiled in both arms"
    (row, *_) = savings
    moved = sorted(dict(row["category_changes"]).items(), key=lambda part: -abs(part[1]))[:_LARGEST]
    steps = (
        f"a profiled decode step went {duration(row['base_step_ns'])} → {duration(row['candidate_step_ns'])}"
    )
    return f"{steps}, most of it in {', '.join(f'{name} {change(value)}' for name, value in moved)}"


def change(value_ns: float | None) -> str:
    """A signed duration."""
    return NOTHING if value_ns is None else f"{'+' if value_ns >= 0 else '−'}{duration(abs(value_ns))}"


def banners(content: ServingContent) -> list[str]:
    """What stands above everything else: simulated numbers, the CPU, runs and launches that failed."""
    said = [SIMULATED_BANNER] if content.simulated else []
    if "cpu" in content.launches["agent"].to_pylist():
        said.append(f"Reference server on a CPU. {CPU_BANNER}")
    said += mixed_builds(content.runs)
    for run in content.runs.to_pylist():
        if run["status"] != "complete":
            said.append(
                f"Run {run['run_id']}: {run['status']} ({run['status_reason'] or 'no reason recorded'})."
            )
    return said


_ARMS = """
WITH l AS (
    SELECT arm, load_id, count(*) FILTER (WHERE role = 'timing') AS launches,
           count(*) FILTER (WHERE status <> 'complete') AS failed, min(started_ns) AS started,
           count(*) FILTER (WHERE role <> 'timing' AND status = 'complete') AS profiled,
           string_agg(DISTINCT weight_format, ', ') AS weight_format,
           string_agg(DISTINCT quantization, ', ') AS quantization
    FROM launches GROUP BY ALL
), v AS (
    SELECT arm, load_id, metric, exp(avg(ln(value))) AS value FROM launch_values GROUP BY ALL
)
SELECT l.*, map_from_entries(list((metric, value)) FILTER (WHERE metric IS NOT NULL)) AS "values"
FROM l LEFT JOIN v USING (arm, load_id) GROUP BY ALL ORDER BY load_id, started, arm
"""


def arm_rows(content: ServingContent, values: Any) -> list[Row]:
    """One row per arm and load for people: launches, and the four metrics, geometric means over launches."""
    found = sql(_ARMS, {"launches": content.launches, "launch_values": values}).to_pylist()
    return [
        {
            **row,
            "values": {m: metric_value(m, value) for m, value in dict(row["values"] or []).items()},
        }
        for row in found
    ]


def load_sentences(launches: Sequence[Row]) -> list[str]:
    """Every load of the run in words."""
    loads = {
        row["load_id"]: (
            f"{row['input_tokens']} tokens in, {row['output_tokens']} out, {row['prompts']} prompts, "
            + (f"at most {row['max_concurrency']} at once" if row["max_concurrency"] else "no bound")
            + (
                f", {row['request_rate']:g} arrivals/s"
                if row["request_rate"] is not None
                else ", all sent at once"
            )
        )
        for row in launches
    }
    return [f"Load {load_id}: {text}." for load_id, text in sorted(loads.items())]
