"""The report: one HTML file that works from a file, without a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from tilewatch.tasks.pages import templates
from tilewatch.tasks.predict.questions.targets import unpredicted
from tilewatch.tasks.publish.comparison_report.causes import with_causes
from tilewatch.tasks.publish.comparison_report.verdict_table import verdict_table
from tilewatch.tasks.publish.display import axis_name, duration, experiment_name, ratio
from tilewatch.tasks.publish.run_report.agreement import agreement_sections
from tilewatch.tasks.publish.run_report.bands import Row, bands, belongs
from tilewatch.tasks.publish.run_report.break_even import break_even_chart
from tilewatch.tasks.publish.run_report.charts import curve_chart
from tilewatch.tasks.publish.run_report.content import ReportContent
from tilewatch.tasks.publish.run_report.coverage import coverage_sections
from tilewatch.tasks.publish.run_report.curves import curve_points
from tilewatch.tasks.publish.run_report.distances import distance_sections
from tilewatch.tasks.publish.run_report.environment import (
    build_rows,
    environment_rows,
    machine_rows,
    run_rows,
)
from tilewatch.tasks.publish.run_report.experiment_sections import sections
from tilewatch.tasks.publish.run_report.gaps import gaps
from tilewatch.tasks.publish.run_report.headline import headline
from tilewatch.tasks.publish.run_report.layer import layer_tables
from tilewatch.tasks.publish.run_report.ledger_table import break_even_lines, ledger_rows
from tilewatch.tasks.publish.run_report.over_builds import OverBuilds, over_builds
from tilewatch.tasks.publish.run_report.predicted import predicted_charts, predicted_points
from tilewatch.tasks.publish.run_report.refinement import refinement_commands

_ENVIRONMENT = templates(
    "tilewatch.tasks.publish",
    "templates",
    duration=duration,
    ratio=ratio,
    axis_name=axis_name,
    experiment_name=experiment_name,
)


@dataclass(frozen=True)
class Chart:
    """One chart of the page; ``figure`` is plotly JSON that cannot end its script element."""

    name: str
    title: str
    note: str
    figure: Markup


def render_report(content: ReportContent) -> str:
    """Self-contained HTML of ``content``; the same content gives the same bytes.

    Useful with the tables of one sweep alone; comparison, cliffs and ledger show where there are any.
    Raises AnalysisError for samples whose capture is missing.
    """
    causes = with_causes(content.comparisons, content.alignments, content.tilings)
    content = replace(content, comparisons=causes)
    curves = curve_points(content.runs, content.captures, content.points, content.samples).to_pylist()
    order = ("experiment", "arm", "axis_value", "point_id", "build", "run_id")
    series = over_builds(content)
    points = content.points.sort_by([(name, "ascending") for name in order])
    return _ENVIRONMENT.get_template("report.html.j2").render(
        content=content,
        headline=headline(content),
        verdicts=verdict_table(content) if content.comparisons.num_rows else None,
        cliffs=[cliff for cliff in _sorted_cliffs(content) if cliff["class"] != "none"],
        refinements=refinement_commands(content.cliffs, content.runs),
        silent=[cliff for cliff in _sorted_cliffs(content) if cliff["class"] == "none"],
        experiments=_experiments(curves, content),
        sections=[
            *sections(content, predicted_points(content.runs, content.points)),
            *agreement_sections(content.runs, content.points, content.alignments),
            *distance_sections(curves),
            *coverage_sections(content.runs, content.profiled),
        ],
        predicted=_predicted(content),
        unpredicted=unpredicted(content.runs),
        over_builds=series,
        build_charts=_build_charts(series),
        ledger=ledger_rows(content.ledger),
        layers=layer_tables(content.exposed, content.ledger),
        break_even=break_even_lines(content.ledger),
        ledger_chart=_ledger_chart(content),
        gaps=gaps(content),
        machines=machine_rows(content.runs),
        runs=run_rows(content.runs),
        builds=build_rows(content.runs),
        environment=environment_rows(content.captures),
        commands=_commands(curves, points.to_pylist()),
        plotly=Markup(get_plotlyjs()),
    )


def _experiments(curves: Sequence[Row], content: ReportContent) -> list[tuple[str, list[Chart]]]:
    """Charts by experiment; a curve on which nothing was timed has none."""
    alignments, cliffs = content.alignments.to_pylist(), content.cliffs.to_pylist()
    found: list[tuple[str, list[Chart]]] = []
    number = 0
    for experiment, members in groupby(curves, key=lambda p: p["experiment"]):
        charts = []
        for curve, rows in groupby(members, key=lambda p: p["curve"]):
            points = list(rows)
            if any(point["value_ns"] is not None for point in points):
                number += 1
                charts.append(_chart(f"chart-{number}", curve, points, alignments, cliffs))
        found.append((experiment, charts))
    return found


def _chart(
    name: str, curve: str, points: Sequence[Row], alignments: Sequence[Row], cliffs: Sequence[Row]
) -> Chart:
    drawn, tiled = "", []
    for (source, arm), rows in groupby(points, key=lambda p: (p["source"], p["arm"])):
        # Later sources stand over earlier ones: behind the lines of a comparison lies the candidate's tiling.
        own = [a for a in alignments if source in ("", a["build"], a["run_id"])]
        if found := bands(list(rows), own):
            drawn, tiled = f"{source} {arm}".strip(), found
    marks = [c for c in cliffs if c["class"] != "none" and belongs(c, points[0]["experiment"], curve)]
    note = f"Bands: observed tiling of {drawn}." if tiled else ""
    return Chart(name, curve, note, _json(curve_chart(points, tiled, marks)))


def _predicted(content: ReportContent) -> list[Chart]:
    found = predicted_charts(content.runs, content.points)
    return [
        Chart(f"chart-predicted-{number}", chart.title, "", _json(chart.figure))
        for number, chart in enumerate(found, start=1)
    ]


def _build_charts(series: OverBuilds | None) -> list[Chart]:
    return [
        Chart(f"chart-builds-{number}", curve.title, "", _json(curve.figure))
        for number, curve in enumerate(series.curves if series else [], start=1)
    ]


def _ledger_chart(content: ReportContent) -> Chart | None:
    if not content.ledger.num_rows:
        return None
    return Chart("chart-ledger", "", "", _json(break_even_chart(content.ledger.to_pylist())))


def _json(figure: str) -> Markup:
    """JSON for a script element: no ``<`` is left in it, so that nothing in a label can end the element."""
    return Markup(figure.replace("<", "\\u003c"))


def _sorted_cliffs(content: ReportContent) -> list[Row]:
    return sorted(
        content.cliffs.to_pylist(),
        key=lambda c: (
            c["class"] == "unrefined",
            -abs(c["ratio"] - 1),
            c["experiment"],
            c["arm"],
            c["before"],
        ),
    )


def _commands(curves: Sequence[Row], points: Sequence[Row]) -> list[dict[str, Any]]:
    values = {(c["experiment"], c["arm"], c["point_id"], c["source"]): c["value_ns"] for c in curves}
    return [
        {
            **{
                key: p[key]
                for key in ("experiment", "linear", "arm", "axis", "axis_value", "status", "command")
            },
            "source": source,
            "value_ns": values[p["experiment"], p["arm"], p["point_id"], source],
        }
        for p in points
        for source in ("", p["build"], p["run_id"])
        if (p["experiment"], p["arm"], p["point_id"], source) in values
    ]
