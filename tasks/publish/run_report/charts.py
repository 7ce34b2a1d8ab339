"""Latency curves as plotly figures that read in black and white: each line its own dash and marker."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import plotly.graph_objects as go

from tilewatch.tasks.publish.display import axis_name, duration, ratio, round_duration
from tilewatch.tasks.publish.run_report.bands import Band, Row

FONT = {
    "family": "system-ui, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif",
    "size": 12,
    "color": "#1b1f24",
}
GRID = "#e3e7eb"
FRAME = {"showline": True, "linecolor": "#57606a", "gridcolor": GRID, "zeroline": False, "ticks": "outside"}
"""An axis of a chart, before its own range and title."""
LINE_CHARACTERS = 75
"""Characters of a band's label that fit beside each other over the width of a chart."""
# Okabe and Ito's colours, told apart by colour-blind readers, ordered so that neighbours differ in lightness.
STYLES = (
    ("#0b3c6f", "solid", "circle"),
    ("#d55e00", "dash", "square-open"),
    ("#009e73", "dot", "diamond"),
    ("#8a3b78", "dashdot", "triangle-up-open"),
    ("#56b4e9", "longdash", "x"),
    ("#5b5b5b", "longdashdot", "cross-open"),
)


def curve_chart(points: Sequence[Row], bands: Sequence[Band], cliffs: Sequence[Row]) -> str:
    """Plotly JSON of one chart from rows of ``curve_points`` that share a curve, sorted by line and axis.

    A point is the median over process medians, its bar their smallest and largest. Both axes are
    logarithmic. ``bands`` are drawn behind the lines, ``cliffs`` as vertical marks.
    """
    figure = go.Figure(layout=_layout(points, bool(bands)))
    lines = [(key, list(rows)) for key, rows in groupby(points, key=lambda p: (p["source"], p["arm"]))]
    for number, ((source, arm), rows) in enumerate(lines):
        timed = [row for row in rows if row["value_ns"] is not None]
        if timed:
            label = html.escape(f"{source} · {arm}" if source else arm)
            figure.add_trace(_trace(label, timed, *STYLES[number % len(STYLES)]))
    for number, band in enumerate(bands):
        _add_band(figure, band, shaded=number % 2 == 0, label=_label(band, bands))
    for _, same in groupby(sorted(cliffs, key=_boundary), key=_boundary):
        _add_cliff(figure, max(same, key=lambda cliff: abs(math.log(cliff["ratio"]))))
    return str(figure.to_json())


def tick_values(values: Sequence[int]) -> list[int]:
    """Of the sorted axis values those that leave room for their labels on a logarithmic axis."""
    shown: list[int] = []
    for value in sorted(values, key=lambda v: (v & (v - 1) != 0, v)):
        if all(abs(math.log2(value / other)) > 0.55 for other in shown):
            shown.append(value)
    return sorted(shown)


def duration_ticks(low: float, high: float) -> list[float]:
    """Round values from ``low`` to ``high`` that leave room for their labels on a logarithmic axis."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)):
        ticks = [step * 10.0**decade for decade in decades for step in steps]
        shown = [tick for tick in ticks if low <= tick <= high]
        if len(shown) >= 4:
            break
    return shown


def _trace(label: str, rows: Sequence[Row], color: str, dash: str, symbol: str) -> go.Scatter:
    values = [row["value_ns"] for row in rows]
    return go.Scatter(
        x=[row["axis_value"] for row in rows],
        y=values,
        name=label,
        mode="lines+markers",
        line={"color": color, "dash": dash, "width": 1.8},
        marker={"color": color, "symbol": symbol, "size": 7, "line": {"width": 1.4, "color": color}},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [row["high_ns"] - value for row, value in zip(rows, values, strict=True)],
            "arrayminus": [value - row["low_ns"] for row, value in zip(rows, values, strict=True)],
            "width": 3,
            "thickness": 1,
            "color": color,
        },
        text=[_hover(row) for row in rows],
        hovertemplate=f"{label}<br>%{{text}}<extra></extra>",
    )


def _hover(row: Row) -> str:
    interval = f"{duration(row['low_ns'])} to {duration(row['high_ns'])}"
    return (
        f"{axis_name(row['axis'])} {row['axis_value']}: <b>{duration(row['value_ns'])}</b>"
        f"<br>{row['processes']} processes, {interval}{_least(row)}"
    )


def _least(row: Row) -> str:
    """The distance from the least possible time; blank where the device's limits are not known."""
    if row.get("distance") is None:
        return ""
    return f"<br>×{row['distance']:.1f} the least possible time ({row['least_bound']} bound)"


def _layout(points: Sequence[Row], with_bands: bool) -> dict[str, Any]:
    values = sorted({int(point["axis_value"]) for point in points})
    edges = [math.log10(values[0] / 1.2), math.log10(values[-1] * 1.2)]
    timed = [point for point in points if point["value_ns"] is not None]
    low = min(point["low_ns"] for point in timed) / 1.25
    high = max(point["high_ns"] for point in timed) * 1.25
    ticks = duration_ticks(low, high)
    return {
        "template": "none",
        "font": FONT,
        "height": 340,
        "margin": {"l": 72, "r": 14, "t": 24, "b": 84},
        "showlegend": True,
        "legend": {"orientation": "h", "x": 0, "y": -0.22, "yanchor": "top", "font": {"size": 11}},
        "hovermode": "closest",
        "xaxis": {
            **FRAME,
            "type": "log",
            "title": {"text": _x_title(points[0]["axis"]), "standoff": 6},
            "tickvals": tick_values(values),
            "range": edges,
            "showgrid": not with_bands,
        },
        "yaxis": {
            **FRAME,
            "type": "log",
            "title": {"text": "time per call", "standoff": 10},
            "range": [math.log10(low), math.log10(high)],
            "tickvals": ticks,
            "ticktext": [round_duration(tick) for tick in ticks],
        },
    }


def _x_title(axis: str) -> str:
    return {"m": "M (rows)", "m_e": "M_e (mean rows per expert)"}.get(axis, html.escape(axis))


def _boundary(cliff: Row) -> tuple[int, int]:
    return cliff["before"], cliff["after"]


def _label(band: Band, bands: Sequence[Band]) -> str:
    """The band's label, or only its value where it is of the field of the first, or nothing, as fits."""
    whole = math.log(bands[-1].end / bands[0].start)
    room = math.log(band.end / band.start) / whole * LINE_CHARACTERS
    name, value = band.label.rsplit(" ", 1)
    short = [value] if bands[0].label.startswith(f"{name} ") else []
    return next((text for text in (band.label, *short) if len(text) <= room), "")


def _add_band(figure: go.Figure, band: Band, *, shaded: bool, label: str) -> None:
    figure.add_shape(
        type="rect",
        xref="x",
        yref="paper",
        x0=band.start,
        x1=band.end,
        y0=0,
        y1=1,
        layer="below",
        line={"width": 1, "color": "#c3cad2", "dash": "dot"},
        fillcolor="#eef1f4" if shaded else "#ffffff",
    )
    if not label:
        return
    middle = (math.log10(band.start) + math.log10(band.end)) / 2
    figure.add_annotation(
        x=middle, y=0.01, xref="x", yref="paper", yanchor="bottom", text=html.escape(label),
        showarrow=False, font={"size": 10, "color": "#57606a"},
    )  # fmt: skip


def _add_cliff(figure: go.Figure, cliff: Row) -> None:
    position = math.sqrt(cliff["before"] * cliff["after"])
    figure.add_shape(
        type="line", xref="x", yref="paper", x0=position, x1=position, y0=0, y1=1,
        line={"color": "#1b1f24", "width": 1.4, "dash": "dash"},
    )  # fmt: skip
    figure.add_annotation(
        x=math.log10(position), y=1, xref="x", yref="paper", yanchor="bottom",
        text=html.escape(f"{cliff['class']} {ratio(cliff['ratio'])}"), showarrow=False, font={"size": 11},
    )  # fmt: skip
