"""The pages of serving experiments: rendered from the stored tables of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts.serving_tables import SERVING_TABLES
from tilewatch.tasks.analyse.comparison.serving_values import ServingTables
from tilewatch.tasks.publish.serving_report.content import ServingContent
from tilewatch.tasks.publish.serving_report.report import serving_report
from tilewatch.tasks.publish.serving_report.summary import launch_summary
from tilewatch.tasks.publish.serving_report.words import verdict_sentence

_IN_CONTENT = {"serving_comparisons": "comparisons", "serving_savings": "savings"}


@dataclass(frozen=True)
class ServingPage:
    """One serving experiment of a run: its page, its sentence, and one summary row an arm."""

    page: str
    sentence: str
    summary: pa.Table


def serving_pages(
    run_id: str,
    tables: Mapping[str, pa.Table],
    links: Mapping[str, str],
    software: Mapping[str, str],
) -> dict[str, ServingPage]:
    """Pages by letter, of every experiment that ``tables`` has launches of."""
    if "launches" not in tables:
        return {}
    letters = sorted(set(tables["launches"]["experiment"].to_pylist()))
    return {letter: _page(run_id, letter, tables, links, software) for letter in letters}


def file_name(letter: str, letters: list[str]) -> str:
    """Name of the page of an experiment beside the report of its run."""
    return "serving.html" if letters == [letter] else f"serving-{letter}.html"


def _page(
    run_id: str,
    letter: str,
    tables: Mapping[str, pa.Table],
    links: Mapping[str, str],
    software: Mapping[str, str],
) -> ServingPage:
    names = ("runs", "captures", *SERVING_TABLES)
    own = {name: _of(tables[name], letter) for name in names if name in tables}
    # A run that was compared with another build has rows of that too; they have a page of their own.
    compared = own["serving_comparisons"]
    own["serving_comparisons"] = compared.filter(pc.equal(compared["compared_by"], "arm"))
    content = ServingContent(
        **{_IN_CONTENT.get(name, name): table for name, table in own.items() if name != "stage_steps"},
        quarantine=tables["quarantine"],
        title=f"Experiment {letter} of run {run_id}",
        command=f"tilewatch report {run_id}",
        links=links,
        software=software,
    )
    serving = ServingTables(**{f.name: own[f.name] for f in fields(ServingTables)})
    return ServingPage(serving_report(content), verdict_sentence(content), launch_summary(serving))


def _of(table: pa.Table, letter: str) -> pa.Table:
    return table.filter(pc.equal(table["experiment"], letter))
