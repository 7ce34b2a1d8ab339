"""The comparison table of the report, worst row first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tilewatch.tasks.publish.display import NOTHING, axis_name, digits, duration, experiment_name, ratio
from tilewatch.tasks.publish.run_report.content import ReportContent
from tilewatch.tasks.publish.summary import VERDICTS, Row, comparison_summary, worst_first

ROW_LIMIT = 2_000
LEAST_Q = 0.001
"""Smaller q values are not told apart: nobody decides by them."""


@dataclass(frozen=True)
class VerdictTable:
    """``rows`` are ready to print, at most ROW_LIMIT of ``total``; ``counts`` cover all of them."""

    rows: list[dict[str, Any]]
    counts: dict[str, int]
    total: int
    changed: list[str]
    overrides: list[str]


def verdict_table(content: ReportContent) -> VerdictTable:
    """The comparison of ``content`` as text; decided ones name their cause."""
    comparisons = content.comparisons
    ordered = worst_first(comparisons)
    return VerdictTable(
        rows=[_row(row) for row in ordered.slice(0, ROW_LIMIT).to_pylist()],
        counts={v: n for v, n in comparison_summary(comparisons, 1).counts.items() if n or v in VERDICTS[:2]},
        total=ordered.num_rows,
        changed=_members(ordered, "changed_components"),
        overrides=_members(ordered, "overrides"),
    )


def _row(row: Row) -> dict[str, Any]:
    same_arm = row["base_arm"] == row["candidate_arm"]
    shape = [f"K{row['k']}", f"N{row['n']}" if row["n"] else "", row["allocation_regime"], row["group_shape"]]
    interval = NOTHING
    if row["ratio_low"] is not None:
        interval = f"{ratio(row['ratio_low'])[1:]} – {ratio(row['ratio_high'])[1:]}"
    return {
        "verdict": row["verdict"],
        "experiment": experiment_name(row["experiment"]),
        "point": f"{row['linear'] or ''} {axis_name(row['axis'])} {row['axis_value']}".strip(),
        "shape": " ".join(part for part in shape if part),
        "arm": row["base_arm"] if same_arm else f"{row['candidate_arm']} against {row['base_arm']}",
        "base": duration(row["base_ns"]),
        "candidate": duration(row["candidate_ns"]),
        "ratio": ratio(row["ratio"]),
        "interval": interval,
        "q": _q_value(row["q_value"]),
        "processes": f"{row['base_processes']} + {row['candidate_processes']}",
        "floor": f"{row['floor_ratio'] - 1:.1%}",
        "floor_reason": row["floor_reason"],
        "reason": _reason(row),
    }


def _q_value(value: float | None) -> str:
    if value is None:
        return NOTHING
    return digits(value, 2) if value >= LEAST_Q else f"< {LEAST_Q}"


def _reason(row: Row) -> str:
    said = row["verdict_reason"]
    if row["cause"]:
        said = row["cause"]
    parts = [row["refused"] and f"refused: {row['refused']}", said]
    if row["confirmed"] is not None:
        parts.append("confirmed in a second lease" if row["confirmed"] else "not confirmed in a second lease")
    if not row["cause"] and row["base_operator"] != row["candidate_operator"]:
        parts.append(f"operator {row['base_operator']} → {row['candidate_operator']}")
    return "; ".join(part for part in parts if part)


def _members(table: pa.Table, column: str) -> list[str]:
    return sorted(set(table[column].combine_chunks().flatten().to_pylist()))
