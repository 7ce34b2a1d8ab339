"""The points of a report over all archived builds: what happened to them, and their curve over builds."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import plotly.graph_objects as go
import pyarrow.compute as pc

from tilewatch.tasks.publish.display import (
    NOTHING,
    axis_name,
    duration,
    experiment_name,
    ratio,
    round_duration,
)
from tilewatch.tasks.publish.run_report.bands import Row
from tilewatch.tasks.publish.run_report.charts import FONT, FRAME
from tilewatch.tasks.publish.run_report.content import ReportContent
from tilewatch.tasks.sql import sql

FEWEST_RUNS = 3
"""Two runs are a comparison, not a series."""
MOST_CHARTS = 6
MOST_EVENTS = 40
MOST_LABELS = 12
EVENTS = {
    "step": ("step", "diamond"),
    "candidate": ("possible step", "diamond-open"),
    "fence": ("outside the fence", "triangle-up"),
    "spike": ("spike, back at the next build", "x"),
    "environment": ("new environment", "square-open"),
}
"""Event: its name and mark, those that matter most first."""

_RANKED = """
WITH shown AS (
    SELECT experiment, arm, point_id, min(linear) AS linear, min(axis) AS axis, min(axis_value) AS axis_value,
           min(allocation_regime) AS allocation_regime, min(group_shape) AS group_shape
    FROM points GROUP BY ALL
), worst AS (
    SELECT experiment, candidate_arm AS arm, point_id,
           max(abs(ln(ratio))) FILTER (verdict IN ('SLOWER', 'FASTER')) AS moved
    FROM comparisons GROUP BY ALL
), rows AS (
    SELECT s.*, p.linear, p.axis, p.axis_value, p.allocation_regime, p.group_shape,
           coalesce(w.moved, 0) AS moved, list_position($1, s.event) AS place
    FROM series s JOIN shown p USING (experiment, arm, point_id)
    LEFT JOIN worst w USING (experiment, arm, point_id)
)
SELECT *, min(CASE WHEN build IN (SELECT build FROM runs) THEN place END) OVER line AS rank,
       max(abs(ln(ratio))) FILTER (event <> 'none') OVER line AS size
FROM rows WINDOW line AS (PARTITION BY agent, evidence, experiment, arm, point_id)
ORDER BY moved DESC, rank NULLS LAST, size DESC NULLS LAST, experiment, arm, linear, axis_value,
         allocation_regime, group_shape, point_id, started_ns, run_id
"""


@dataclass(frozen=True)
class BuildCurve:
    """One point over builds; ``figure`` is plotly JSON."""

    title: str
    figure: str


@dataclass(frozen=True)
class OverBuilds:
    """What the section shows: a sentence, rows of events as text, and the curves that moved most."""

    sentence: str
    events: Sequence[tuple[str, ...]]
    more: int
    curves: list[BuildCurve]


def over_builds(content: ReportContent) -> OverBuilds | None:
    """The section, or None where fewer than FEWEST_RUNS runs of these points are archived."""
    runs = pc.count_distinct(content.series["run_id"]).as_py()
    if runs < FEWEST_RUNS:
        return None
    rows = _ranked(content)
    lines = [list(members) for _, members in groupby(rows, key=_line)]
    events = [row for row in rows if row["event"] != "none"]
    names = {event: sum(row["event"] == event for row in events) for event in EVENTS}
    found = ", ".join(f"{number} × {EVENTS[event][0]}" for event, number in names.items() if number)
    sentence = f"{len(lines)} points over {runs} archived runs: {found or 'nothing left its fence'}."
    texts = [
        (
            EVENTS[row["event"]][0], _title(row), row["build"], duration(row["reference_ns"]),
            duration(row["value_ns"]), ratio(row["ratio"]), ratio(row["fence_ratio"]),
            row["fence_reason"] or NOTHING,
        )
        for row in events[:MOST_EVENTS]
    ]  # fmt: skip
    curves = [BuildCurve(_title(line[0]), _chart(line)) for line in lines[:MOST_CHARTS]]
    return OverBuilds(sentence, texts, max(len(events) - MOST_EVENTS, 0), curves)


def _ranked(content: ReportContent) -> list[Row]:
    tables = {name: getattr(content, name) for name in ("series", "points", "comparisons", "runs")}
    rows: list[Row] = sql(_RANKED, tables, [list(EVENTS)]).to_pylist()
    return rows


def _line(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("agent", "evidence", "experiment", "arm", "point_id"))


def _title(row: Row) -> str:
    parts = [
        experiment_name(row["experiment"]),
        row["linear"],
        f"{axis_name(row['axis'])} {row['axis_value']}",
    ]
    parts += [row["allocation_regime"], row["group_shape"], row["arm"]]
    return " · ".join(part for part in parts if part)


def _chart(line: list[Row]) -> str:
    figure = go.Figure(layout=_layout(line))
    places = list(range(len(line)))
    fenced = [row["fence_ratio"] if row["reference_ns"] else None for row in line]
    for sign, name in ((1, "fence"), (-1, "")):
        figure.add_trace(
            go.Scatter(
                x=places,
                y=[
                    None if fence is None else row["reference_ns"] * fence**sign
                    for row, fence in zip(line, fenced, strict=True)
                ],
                mode="lines",
                line={"color": "#9aa4af", "dash": "dot", "width": 1, "shape": "hvh"},
                name=name,
                showlegend=bool(name),
                hoverinfo="skip",
            )
        )
    figure.add_trace(
        go.Scatter(
            x=places,
            y=[row["value_ns"] for row in line],
            mode="lines+markers",
            line={"color": "#0b3c6f", "width": 1.6},
            marker={"size": 6},
            name="point value",
            text=[f"{html.escape(row['build'])}<br>{duration(row['value_ns'])}" for row in line],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    for event, (name, symbol) in EVENTS.items():
        if at := [place for place, row in enumerate(line) if row["event"] == event]:
            _mark(figure, name, symbol, at, line)
    return str(figure.to_json())


def _mark(figure: go.Figure, name: str, symbol: str, at: list[int], line: list[Row]) -> None:
    figure.add_trace(
        go.Scatter(
            x=at, y=[line[place]["value_ns"] for place in at], mode="markers+text", name=name,
            marker={
                "symbol": symbol, "size": 13, "color": "#d55e00", "line": {"width": 1.5, "color": "#1b1f24"}
            },
            text=["" if line[place]["ratio"] is None else ratio(line[place]["ratio"]) for place in at],
            textposition="top center", hoverinfo="skip",
        )
    )  # fmt: skip


def _layout(line: list[Row]) -> dict[str, Any]:
    every = max(1, -(-len(line) // MOST_LABELS))
    shown = list(range(0, len(line), every))
    values = [row["value_ns"] for row in line]
    low, high = min(values) * 0.9, max(values) * 1.12
    ticks = _round_ticks(low, high)
    return {
        "template": "none",
        "font": FONT,
        "height": 320,
        "margin": {"l": 72, "r": 14, "t": 24, "b": 96},
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": -0.36, "yanchor": "top", "font": {"size": 11}},
        "xaxis": {
            **FRAME, "tickvals": shown, "ticktext": [html.escape(line[place]["build"]) for place in shown],
            "tickangle": -20, "range": [-0.5, len(line) - 0.5],
        },
        "yaxis": {
            **FRAME, "title": {"text": "time per call", "standoff": 10}, "range": [low, high],
            "tickvals": ticks, "ticktext": [round_duration(tick) for tick in ticks],
        },
    }  # fmt: skip


def _round_ticks(low: float, high: float) -> list[float]:
    """Round values from ``low`` to ``high``, three to seven of them."""
    decade = 10.0 ** math.floor(math.log10(high - low))
    step = next(part * decade for part in (0.2, 0.25, 0.5, 1.0, 2.0) if (high - low) / (part * decade) <= 6)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
