"""The page of experiment E: one HTML file that works from a file, without a network."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from tilewatch.tasks.analyse.comparison.serving_values import ServingTables, launch_values
from tilewatch.tasks.pages import templates
from tilewatch.tasks.publish.display import duration, ratio
from tilewatch.tasks.publish.run_report.environment import (
    build_rows,
    environment_rows,
    machine_rows,
    run_rows,
)
from tilewatch.tasks.publish.serving_report.charts import SHOWN, metric_chart, phase_charts
from tilewatch.tasks.publish.serving_report.content import ServingContent
from tilewatch.tasks.publish.serving_report.words import (
    arm_rows,
    banners,
    change,
    load_sentences,
    metric_name,
    metric_value,
    verdict_sentence,
)

LIGHTS = {"passed": "●", "failed": "✕", "not armed": "○"}
"""Gate lights that differ in shape, so that they need no colour."""

_ENVIRONMENT = templates(
    "tilewatch.tasks.publish",
    "templates",
    duration=duration,
    ratio=ratio,
    change=change,
    metric_name=metric_name,
    metric_value=metric_value,
)


def serving_report(content: ServingContent) -> str:
    """Self-contained HTML of ``content``; the same content gives the same bytes.

    Shows the sentence whether W8A8 paid off, arms with the four metrics, verdicts, gates with margins, phases
    as stacked bars, the ledger against TPOT, the proof of every launch, and what failed. Raises AnalysisError
    for requests or metrics whose launch is missing.
    """
    tables = ServingTables(content.launches, content.requests, content.serving_metrics)
    values = launch_values(tables)
    launches = sorted(content.launches.to_pylist(), key=lambda row: (row["started_ns"], row["capture_id"]))
    arms = list(dict.fromkeys(row["arm"] for row in launches))
    charts = [
        (f"chart-{phase}", phase.replace("_", " "), note, _json(figure))
        for phase, note, figure in phase_charts(content.phase_costs, arms)
    ]
    return _ENVIRONMENT.get_template("serving.html.j2").render(
        content=content,
        sentence=content.sentence or verdict_sentence(content),
        banners=banners(content),
        loads=load_sentences(launches),
        shown=SHOWN,
        arms=arm_rows(content, values),
        metric_chart=_json(metric_chart(values, arms)) if values.num_rows else None,
        pairs=_pairs(content),
        forced=sorted(
            {text for row in content.comparisons.to_pylist() for text in row["forced_differences"]}
        ),
        gates=[{**row, "light": LIGHTS[row["status"]]} for row in content.gates.to_pylist()],
        phases=charts,
        savings=content.savings.to_pylist(),
        launches=launches,
        failures=[row for row in launches if row["status"] != "complete"],
        quarantined=content.quarantine.num_rows,
        machines=machine_rows(content.runs),
        runs=run_rows(content.runs),
        builds=build_rows(content.runs),
        environment=environment_rows(content.captures),
        plotly=Markup(get_plotlyjs()),
    )


def _pairs(content: ServingContent) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Comparison rows by pair and load, in the order of the metrics; the pair of the sentence first."""
    order = [*SHOWN, "step_ns"]

    def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
        asked = (row["base_arm"], row["candidate_arm"]) == (content.base_arm, content.candidate_arm)
        return (not asked, *_pair(row), order.index(row["metric"]))

    rows = sorted(content.comparisons.to_pylist(), key=place)
    found = [list(group) for _, group in groupby(rows, key=_pair)]
    several = len({row["load_id"] for row in rows}) > 1
    return [
        (f"{g[0]['candidate_arm']} against {g[0]['base_arm']}" + (f", {g[0]['load']}" if several else ""), g)
        for g in found
    ]


def _pair(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["base_arm"], row["candidate_arm"], row["load_id"]


def _json(figure: str) -> Markup:
    """JSON for a script element: no ``<`` is left in it, so that nothing in a label can end the element."""
    return Markup(figure.replace("<", "\\u003c"))
