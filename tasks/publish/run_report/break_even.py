"""The ledger as bars: on which M INT8 wins, loses, or cannot be told apart."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import plotly.graph_objects as go

from tilewatch.tasks.publish.display import duration
from tilewatch.tasks.publish.run_report.bands import Row
from tilewatch.tasks.publish.run_report.charts import FONT, GRID, tick_values

OUTCOMES = {
    "int8_wins": ("INT8 wins", "#0b3c6f", ""),
    "no_difference": ("no difference", "#ffffff", ""),
    "bf16_wins": ("BF16 wins", "#e8a06a", "/"),
    "unknown": ("unknown", "#ffffff", "."),
}
"""Outcome: its name, colour and pattern. Dark, white, hatched and dotted differ in black and white too."""


@dataclass(frozen=True)
class Stretch:
    """Neighbouring M of one ledger line with one outcome; edges half way to the neighbours."""

    line: str
    outcome: str
    start: float
    end: float
    hover: str


def ledger_line(row: Row) -> str:
    """What one bar of the ledger is about, in words."""
    parts = [row["linear"], f"K{row['k']}", f"N{row['n']}", row["input_kind"].replace("_", " ")]
    parts += [row["allocation_regime"], row["group_shape"], row["build"]]
    parts += [row["launch_mode"]] if row["launch_mode"] != "eager" else []
    return " · ".join(part for part in parts if part)


def stretches(ledger: Sequence[Row]) -> list[Stretch]:
    """Stretches of all lines; the rows may come in any order."""
    ordered = sorted(ledger, key=lambda row: (ledger_line(row), row["m"]))
    found = []
    for line, members in groupby(ordered, key=ledger_line):
        rows = list(members)
        values = [float(row["m"]) for row in rows]
        middles = [math.sqrt(a * b) for a, b in pairwise(values)]
        edges = [values[0] / math.sqrt(2), *middles, values[-1] * math.sqrt(2)]
        position = 0
        for outcome, part in groupby(rows, key=lambda row: row["outcome"]):
            stretch = list(part)
            end = position + len(stretch)
            found.append(Stretch(line, outcome, edges[position], edges[end], _hover(stretch)))
            position = end
    return found


def break_even_chart(ledger: Sequence[Row]) -> str:
    """Plotly JSON: a bar a ledger line over a logarithmic M axis, a colour and pattern an outcome."""
    found = stretches(ledger)
    lines = sorted({stretch.line for stretch in found}, reverse=True)
    figure = go.Figure(layout=_layout(sorted({int(row["m"]) for row in ledger}), len(lines)))
    for outcome, (name, color, pattern) in OUTCOMES.items():
        own = [stretch for stretch in found if stretch.outcome == outcome]
        if own:
            figure.add_trace(_bars(name, own, color, pattern))
    figure.update_yaxes(categoryorder="array", categoryarray=[html.escape(line) for line in lines])
    return str(figure.to_json())


def _bars(name: str, own: Sequence[Stretch], color: str, pattern: str) -> go.Bar:
    return go.Bar(
        orientation="h",
        name=name,
        y=[html.escape(stretch.line) for stretch in own],
        base=[stretch.start for stretch in own],
        x=[stretch.end - stretch.start for stretch in own],
        text=[stretch.hover for stretch in own],
        textposition="none",
        hovertemplate=f"%{{y}}<br>{name}<br>%{{text}}<extra></extra>",
        marker={
            "color": color,
            "line": {"color": "#1b1f24", "width": 1},
            "pattern": {"shape": pattern, "fgcolor": "#1b1f24", "size": 7, "solidity": 0.25},
        },
    )


def _hover(rows: Sequence[Row]) -> str:
    first, last = rows[0], rows[-1]
    reach = f"M {first['m']}" if len(rows) == 1 else f"M {first['m']} to {last['m']}"
    return f"{reach}, gain {duration(first['net_ns'])} to {duration(last['net_ns'])}"


def _layout(values: Sequence[int], lines: int) -> dict[str, Any]:
    return {
        "template": "none",
        "font": FONT,
        "barmode": "overlay",
        "bargap": 0.35,
        "height": 130 + 34 * lines,
        "margin": {"l": 20, "r": 20, "t": 36, "b": 46},
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "traceorder": "normal"},
        "xaxis": {
            "type": "log",
            "title": {"text": "M (rows; mean rows per expert for grouped matmul)", "standoff": 6},
            "tickvals": tick_values(values),
            "gridcolor": GRID,
            "zeroline": False,
        },
        "yaxis": {"automargin": True, "ticks": ""},
    }
