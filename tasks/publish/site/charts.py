"""Charts of the site: plotly figures as JSON, drawn by one shared copy of plotly."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa
from markupsafe import Markup

from tilewatch.tasks.publish.display import duration
from tilewatch.tasks.publish.run_report.bands import bands, belongs
from tilewatch.tasks.publish.run_report.charts import FRAME, STYLES, curve_chart
from tilewatch.tasks.publish.run_report.curves import curve_points

Row = dict[str, Any]
_MARKS = {"environment": "#5b5b5b", "step": "#a40e26", "fence": "#d55e00", "spike": "#8a3b78"}


@dataclass(frozen=True)
class Figure:
    """One chart: a title, and JSON that cannot end its script element."""

    title: str
    json: Markup


def safe_json(figure: str) -> Markup:
    """Plotly JSON for a script element: no ``<`` is left in it."""
    return Markup(figure.replace("<", "\\u003c"))


def curve_figures(tables: Mapping[str, pa.Table]) -> tuple[list[Figure], pa.Table]:
    """One figure a curve from the contract tables of one run, and the rows that are drawn.

    ``tables`` has runs, captures, points, samples, alignments and cliffs. A curve without a time has none.
    """
    data = curve_points(tables["runs"], tables["captures"], tables["points"], tables["samples"])
    alignments, cliffs = tables["alignments"].to_pylist(), tables["cliffs"].to_pylist()
    found = []
    for (experiment, curve), members in groupby(
        data.to_pylist(), key=lambda p: (p["experiment"], p["curve"])
    ):
        rows = list(members)
        if not any(row["value_ns"] is not None for row in rows):
            continue
        tiled = next(
            (b for _, arm in groupby(rows, key=lambda p: p["arm"]) if (b := bands(list(arm), alignments))), []
        )
        marks = [
            c for c in cliffs if c["class"] not in ("none", "unrefined") and belongs(c, experiment, curve)
        ]
        found.append(Figure(curve, safe_json(curve_chart(rows, tiled, marks))))
    return found, data


def build_history(series: Sequence[Row]) -> list[Figure]:
    """Values of one point over builds, one figure a kind of evidence; events are vertical lines."""
    found = []
    for (agent, evidence), members in groupby(
        sorted(series, key=lambda r: (r["agent"], r["evidence"], r["segment"], r["position"])),
        key=lambda r: (r["agent"], r["evidence"]),
    ):
        rows = [row for row in members if row["value_ns"] is not None]
        if rows:
            found.append(Figure(f"{evidence}, agent {agent}", safe_json(_history(rows))))
    return found


def _history(rows: Sequence[Row]) -> str:
    color, dash, symbol = STYLES[0]
    x = [f"{row['build']} · {row['run_id'][-6:]}" for row in rows]
    figure = go.Figure(
        go.Scatter(
            x=x,
            y=[row["value_ns"] for row in rows],
            mode="lines+markers",
            line={"color": color, "dash": dash},
            marker={"symbol": symbol, "size": 8},
            text=[_hover(row) for row in rows],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    for name, row in zip(x, rows, strict=True):
        if row["event"] in _MARKS:
            figure.add_vline(x=x.index(name), line={"color": _MARKS[row["event"]], "dash": "dot"})
            figure.add_annotation(x=name, y=1.04, yref="paper", text=row["event"], showarrow=False)
    figure.update_layout(template="none", height=320, margin={"l": 80, "r": 14, "t": 30, "b": 90})
    figure.update_xaxes(type="category", **FRAME)
    figure.update_yaxes(title="ns", rangemode="tozero", **FRAME)
    return str(figure.to_json())


def _hover(row: Row) -> str:
    return f"{html.escape(row['build'])}: <b>{duration(row['value_ns'])}</b>, {row['processes']} processes"
