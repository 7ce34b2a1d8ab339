"""What host tiling is predicted to do along the axes of a report: cores and rounds, marked as predicted."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.analyse.savings.experiment_tables import PREDICTED
from tilewatch.tasks.predict.calls import GroupedMatmulCall, OperatorCall
from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.predict.predict import predict_axis
from tilewatch.tasks.predict.questions.experiments import call_of_point
from tilewatch.tasks.predict.questions.for_points import point_predictions
from tilewatch.tasks.predict.questions.targets import Target, targets
from tilewatch.tasks.publish.display import experiment_name
from tilewatch.tasks.publish.run_report.bands import Row
from tilewatch.tasks.publish.run_report.charts import FONT, FRAME, STYLES, tick_values

ARMS = ("standalone", "tuple_input", "int8", "int8_hint")
"""Arms whose operators are drawn; the others share their tiling or have no predictor."""


@dataclass(frozen=True)
class PredictedChart:
    """Cores and rounds of one operator call along its axis; ``figure`` is plotly JSON."""

    title: str
    figure: str


def predicted_points(runs: pa.Table, points: pa.Table) -> pa.Table:
    """Schema PREDICTED of ``experiment_tables`` for every point of a known target."""
    rows: list[dict[str, Any]] = []
    for target in targets(runs):
        own = points.filter(pc.equal(points["build"], target.build))
        for row in point_predictions(own, target.platform, target.releases).to_pylist():
            kept = {name: row.get(name) for name in PREDICTED.names}
            rows.append(kept | {"build": target.build, "vector_cores": target.platform.vector_cores})
    return pa.Table.from_pylist(rows, schema=PREDICTED)


def predicted_charts(runs: pa.Table, points: pa.Table) -> list[PredictedChart]:
    """A chart per predicted operator call of the points, over the whole of its axis; equal ones once."""
    chosen = targets(runs)
    if not chosen:
        return []
    calls: dict[tuple[str, str], tuple[OperatorCall, int]] = {}
    for point in points.filter(pc.is_in(points["arm"], value_set=pa.array(ARMS))).to_pylist():
        try:
            call = call_of_point(point)
        except PredictError:
            continue
        if isinstance(call, GroupedMatmulCall) and point["group_shape"] != "uniform":
            continue
        key = _key(point)
        calls[key] = (call, max(point["axis_value"], calls[key][1] if key in calls else 0))
    charts = []
    for key, (call, last) in sorted(calls.items()):
        lines = [(target, line) for target in chosen if (line := _line(target, call, last)) is not None]
        if lines:
            name = "M_e" if isinstance(call, GroupedMatmulCall) else "M"
            drawn = [target for target, _ in lines]
            figure = _figure(name, last, drawn, [line for _, line in lines])
            charts.append(PredictedChart(": ".join(key), figure))
    return charts


def _key(point: Row) -> tuple[str, str]:
    shape = [point["linear"], f"K{point['k']}", f"N{point['n']}" if point["n"] else ""]
    shape += [point["allocation_regime"], "tuning hint" if point["tuning_config"] else ""]
    return experiment_name(point["experiment"]), " ".join(part for part in shape if part)


def _line(target: Target, call: OperatorCall, last: int) -> tuple[list[int], list[int]] | None:
    axis = np.arange(1, last + 1, dtype=np.int64)
    name = "m"
    if isinstance(call, GroupedMatmulCall):
        name = "m_e"
        exact = call.m == (call.m_e or 0) * call.groups
        call = replace(call, exact_rows=exact, hint_m_e=bool(call.tuning_config))
        call = replace(call, busy_groups=call.groups, group_list=None)
    try:
        found = predict_axis(
            call, name, axis, target.platform, target.releases.of(call, target.platform).code
        )
    except PredictError:
        return None
    return [int(v) for v in found.columns["used_core_num"]], [int(v) for v in found.columns["rounds"]]


def _figure(
    axis: str, last: int, chosen: Sequence[Target], lines: Sequence[tuple[list[int], list[int]]]
) -> str:
    values = list(range(1, last + 1))
    most = max(max(rounds) for _, rounds in lines)
    figure = go.Figure(layout=_layout(axis, last, most))
    for number, (target, (cores, rounds)) in enumerate(zip(chosen, lines, strict=True)):
        color, dash, _ = STYLES[number % len(STYLES)]
        label = html.escape(f"{target.build} · predicted")
        for place, (what, shown) in enumerate((("cores", cores), ("rounds", rounds))):
            figure.add_trace(
                go.Scatter(
                    x=values,
                    y=shown,
                    name=label,
                    legendgroup=label,
                    showlegend=place == 0,
                    mode="lines",
                    line={"color": color, "dash": dash, "width": 2, "shape": "hv"},
                    yaxis="y" if place == 0 else "y2",
                    hovertemplate=f"{label}<br>{axis} %{{x}}: %{{y}} {what}<extra></extra>",
                )
            )
    return str(figure.to_json())


def _layout(axis: str, last: int, most_rounds: int) -> dict[str, Any]:
    return {
        "template": "none",
        "font": FONT,
        "height": 300,
        "margin": {"l": 60, "r": 14, "t": 10, "b": 70},
        "legend": {"orientation": "h", "x": 0, "y": -0.24, "yanchor": "top", "font": {"size": 11}},
        "xaxis": {
            **FRAME,
            "type": "log",
            "title": {"text": axis, "standoff": 4},
            "tickvals": tick_values([2**power for power in range(last.bit_length())]),
            "anchor": "y2",
        },
        "yaxis": {**FRAME, "title": {"text": "cores"}, "domain": [0.54, 1], "rangemode": "tozero"},
        "yaxis2": {
            **FRAME,
            "title": {"text": "rounds"},
            "domain": [0, 0.46],
            "rangemode": "tozero",
            "dtick": max(1, most_rounds // 3),
        },
    }
