"""Charts of experiment E that read in black and white: launch values by arm, and phases as stacked bars."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa
from plotly.subplots import make_subplots

from tilewatch.tasks.publish.display import duration
from tilewatch.tasks.publish.run_report.charts import FONT, GRID, STYLES
from tilewatch.tasks.publish.serving_report.words import metric_name, metric_value
from tilewatch.tasks.sql import sql

Row = Mapping[str, Any]
SHOWN = ("ttft_ns", "tpot_ns", "output_token_per_s", "request_per_s")
ORDER = (
    "dense", "expert", "quant", "attention", "norm", "router", "dispatch", "combine", "collective",
    "residual", "other", "idle",
)  # fmt: skip
_FILL = {
    "dense": ("#0b3c6f", ""), "expert": ("#56b4e9", ""), "quant": ("#f2a065", "/"),
    "attention": ("#009e73", ""), "norm": ("#f7ec8a", ""), "router": ("#b483a8", "\\"),
    "dispatch": ("#e3c1d4", "|"), "combine": ("#cdbf95", "-"), "collective": ("#5b5b5b", ""),
    "residual": ("#a9bac9", "x"), "other": ("#dadada", "."), "idle": ("#ffffff", ""),
}  # fmt: skip
"""Fill and hatching by category: neighbours differ in one of them, and large parts carry their name."""

_WHITE_ON = ("dense", "attention", "collective")
_LABEL_SHARE = 0.06
"""A part of the longest bar that has room for its name."""

_PER_STEP = """
SELECT phase, arm, category, sum(exposed_ns) / any_value(t.steps) AS value, any_value(t.steps) AS steps
FROM costs JOIN (
    SELECT phase, arm, sum(steps) AS steps
    FROM (SELECT DISTINCT capture_id, phase, arm, steps FROM costs) GROUP BY ALL
) t USING (phase, arm)
GROUP BY phase, arm, category
"""


def metric_chart(values: pa.Table, arms: Sequence[str]) -> str:
    """Plotly JSON: every launch as a dot, by arm, one panel a metric; ``values`` of ``launch_values``."""
    figure = make_subplots(rows=1, cols=len(SHOWN), subplot_titles=[_title(metric) for metric in SHOWN])
    rows = values.to_pylist()
    for column, metric in enumerate(SHOWN, start=1):
        for number, arm in enumerate(arms):
            found = [r["value"] for r in rows if r["arm"] == arm and r["metric"] == metric]
            color, _, symbol = STYLES[number % len(STYLES)]
            figure.add_trace(
                go.Scatter(
                    x=[html.escape(arm)] * len(found),
                    y=[value / 1e6 if metric.endswith("_ns") else value for value in found],
                    mode="markers",
                    marker={
                        "color": color,
                        "symbol": symbol,
                        "size": 9,
                        "line": {"width": 1.4, "color": color},
                    },
                    text=[metric_value(metric, value) for value in found],
                    hovertemplate=f"{html.escape(arm)}: %{{text}}<extra></extra>",
                    showlegend=False,
                ),
                row=1,
                col=column,
            )
    figure.update_layout(template="none", font=FONT, height=300, margin={"l": 50, "r": 10, "t": 34, "b": 70})
    figure.update_xaxes(showline=True, linecolor="#57606a", tickangle=-30, range=[-0.5, len(arms) - 0.5])
    figure.update_yaxes(
        showline=True, linecolor="#57606a", gridcolor=GRID, zeroline=False, rangemode="normal"
    )
    return str(figure.to_json())


def phase_charts(costs: pa.Table, arms: Sequence[str]) -> list[tuple[str, str, str]]:
    """(phase, note, Plotly JSON) of every phase: one stacked bar an arm, exposed time of a mean step."""
    rows = sql(_PER_STEP, {"costs": costs}).to_pylist()
    order = ("decode", "target_verify", "draft", "prefill", "unknown")
    charts = []
    for phase in [phase for phase in order if any(row["phase"] == phase for row in rows)]:
        own = [row for row in rows if row["phase"] == phase]
        counted = {row["arm"]: row["steps"] for row in own}
        steps = ", ".join(f"{arm}: {counted[arm]}" for arm in arms if arm in counted)
        charts.append((phase, f"Mean over profiled steps ({steps}).", _stacked(own, arms)))
    return charts


def _stacked(rows: Sequence[Row], arms: Sequence[str]) -> str:
    """One horizontal bar an arm, its parts in the order of ORDER, with the sum behind it."""
    shown = [arm for arm in arms if any(row["arm"] == arm for row in rows)]
    totals = {arm: sum(row["value"] for row in rows if row["arm"] == arm) for arm in shown}
    longest = max(totals.values(), default=1.0) or 1.0
    figure = go.Figure()
    for category in ORDER:
        values = {row["arm"]: row["value"] for row in rows if row["category"] == category}
        if any(values.values()):
            figure.add_trace(_part(category, {arm: values.get(arm, 0.0) for arm in shown}, totals, longest))
    for arm in shown:
        figure.add_annotation(
            x=totals[arm] / 1e6, y=html.escape(arm), text=duration(totals[arm]), showarrow=False,
            xanchor="left", xshift=4, font={"size": 12},
        )  # fmt: skip
    figure.update_layout(
        template="none", font=FONT, barmode="stack", bargap=0.35, height=110 + 58 * len(shown),
        margin={"l": 90, "r": 70, "t": 10, "b": 78},
        legend={"orientation": "h", "x": 0, "y": -0.32, "yanchor": "top", "traceorder": "normal"},
        xaxis={
            "title": {"text": "ms a step", "standoff": 4}, "gridcolor": GRID, "zeroline": False,
            "range": [0, longest * 1.04 / 1e6],
        },
        yaxis={"autorange": "reversed", "ticks": ""},
    )  # fmt: skip
    return str(figure.to_json())


def _part(category: str, values: Mapping[str, float], totals: Mapping[str, float], longest: float) -> go.Bar:
    """One category of every bar; a part with room for it carries its name."""
    color, pattern = _FILL[category]
    return go.Bar(
        name=category,
        orientation="h",
        y=[html.escape(arm) for arm in values],
        x=[value / 1e6 for value in values.values()],
        marker={
            "color": color,
            "line": {"color": "#1b1f24", "width": 1},
            "pattern": {
                "shape": pattern, "fillmode": "overlay", "fgcolor": "#6b7480", "size": 7, "solidity": 0.12,
            },
        },
        text=[category if value > _LABEL_SHARE * longest else "" for value in values.values()],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        insidetextfont={"color": "#ffffff" if category in _WHITE_ON else "#1b1f24", "size": 12},
        customdata=[
            f"{category}: {duration(value)}, {value / totals[arm]:.1%} of the step"
            for arm, value in values.items()
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip


def _title(metric: str) -> str:
    unit = (
        "ms" if metric.endswith("_ns") else {"output_token_per_s": "token/s", "request_per_s": "1/s"}[metric]
    )
    return f"{metric_name(metric)} ({unit})"
