"""The report of a run: rendered from the stored tables, kept on this host and in the object store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts.serving_tables import SERVING_TABLES
from tilewatch.flows.steps.pages import mark_of, publish_pages
from tilewatch.flows.steps.tabulate import Tabulated
from tilewatch.infra.archive import Archive
from tilewatch.infra.progress import current
from tilewatch.infra.settings import Settings
from tilewatch.tasks.ingest.captures import INGESTED
from tilewatch.tasks.publish.run_report.content import ReportContent
from tilewatch.tasks.publish.run_report.report import render_report
from tilewatch.tasks.publish.serving_report.pages import ServingPage, file_name, serving_pages
from tilewatch.tasks.publish.summary import sweep_sentence, sweep_summary
from tilewatch.tasks.validate.page import render_page

SOFTWARE = ("tilewatch", "prefect", "great-expectations", "deltalake", "duckdb", "pyarrow", "plotly")
SECTIONS = (
    "runs", "captures", "points", "samples", "alignments", "tilings", "cliffs", "ledger", "checks",
    "quarantine",
)  # fmt: skip


@dataclass(frozen=True)
class SweepReport:
    """What a sweep came to, for a terminal or an artifact. ``path`` is the report on this host."""

    run_id: str
    build: str
    path: Path
    sentence: str
    summary: pa.Table
    warnings: tuple[str, ...]
    failed: bool
    serving: Mapping[str, ServingPage] = field(default_factory=dict)
    """Serving experiments of the run by letter."""
    pages: tuple[Path, ...] = ()
    """Every page of the run, ``path`` first."""


def report_run(settings: Settings, archive: Archive, tabulated: Tabulated) -> SweepReport:
    """Render and publish the report and the validation page of a run that was just stored."""
    tables, document = tabulated.tables, tabulated.document
    current().stage("report", 1)
    validation = render_page(
        tabulated.validation,
        title=f"{mark_of(tables['runs'])}Validation of run {document.run_id}",
        report_href="report.html",
    )
    links = {"validation": "validation.html"}
    pages, serving = _pages(archive, document.run_id, tables, links)
    folder = publish_pages(settings, archive, document.run_id, {**pages, "validation.html": validation})
    current().advance(next(iter(pages)))
    runs = tables["runs"]
    said = [sweep_sentence(runs, tables["points"])] if document.plans else []
    return SweepReport(
        run_id=document.run_id,
        build=document.build,
        path=folder / next(iter(pages)),
        pages=tuple(folder / name for name in pages),
        serving=serving,
        sentence=" ".join([*said, *(page.sentence for page in serving.values())]),
        summary=sweep_summary(runs, tables["captures"], tables["points"], tables["samples"]),
        warnings=tuple(_warnings(runs)),
        failed="failed" in runs["status"].to_pylist(),
    )


def report_archived(settings: Settings, archive: Archive, run_id: str, to: Path | None) -> Path:
    """Render the report of an archived run again; returns where it is."""
    names = dict.fromkeys((*SECTIONS, *SERVING_TABLES))
    tables = {name: archive.tables.scan(name, [("run_id", "==", run_id)]) for name in names}
    links = {"validation": "validation.html"} if to is None else {}
    pages, _ = _pages(archive, run_id, tables, links)
    first = next(iter(pages))
    if to is None:
        return publish_pages(settings, archive, run_id, pages) / first
    to.parent.mkdir(parents=True, exist_ok=True)
    for name, page in pages.items():
        target = to if name == first else to.with_name(f"{to.stem}-{name}")
        target.write_text(page, encoding="utf-8")
    return to


def _pages(
    archive: Archive, run_id: str, tables: dict[str, pa.Table], links: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, ServingPage]]:
    """Every page of a run by file name, and its serving experiments; that of the operators is first."""
    serving = serving_pages(run_id, tables, links, software())
    named = {letter: file_name(letter, list(serving)) for letter in serving}
    pages = {named[letter]: page.page for letter, page in serving.items()}
    if serving and not tables["points"].num_rows:
        return pages, serving
    more = {f"experiment {letter}": name for letter, name in named.items()} if links else {}
    report = render_report(_content(archive, run_id, tables, {**links, **more}))
    return {"report.html": report, **pages}, serving


def software() -> dict[str, str]:
    """Versions of the software that made a page."""
    return {name: version(name) for name in SOFTWARE}


def beside(archive: Archive, runs: pa.Table) -> dict[str, pa.Table]:
    """What the archive holds beside ``runs`` themselves, by name in ReportContent.

    ``series`` of their experiments on their devices, ``exposed`` steps of their builds from other captures,
    ``profiled`` kernels of their builds from ingested profiles, and the arms of experiment E of their builds
    against each other (``serving``).
    """
    values = {name: sorted(set(runs[name].to_pylist())) for name in ("build", "experiment", "device")}
    on_device = archive.tables.scan("runs", [("device", "in", values["device"])], ["run_id"])
    same = [(name, "in", values[name]) for name in ("build", "experiment")]
    return {
        "series": archive.tables.scan(
            "series", [same[1], ("run_id", "in", sorted(set(on_device["run_id"].to_pylist())))]
        ),
        "exposed": archive.tables.scan(
            "exposed_times", [same[0], ("experiment", "not in", values["experiment"])]
        ),
        "profiled": archive.tables.scan("kernels", [same[0], ("experiment", "==", INGESTED)]),
        "serving": archive.tables.scan("serving_comparisons", [same[0], ("compared_by", "==", "arm")]),
    }


def _without(table: pa.Table, experiments: set[str]) -> pa.Table:
    """``table`` without the rows of ``experiments``, which have pages of their own."""
    if "experiment" not in table.column_names or not experiments:
        return table
    theirs = pc.is_in(table["experiment"], value_set=pa.array(sorted(experiments), pa.string()))
    return table.filter(pc.invert(theirs))


def _content(
    archive: Archive, run_id: str, tables: dict[str, pa.Table], links: Mapping[str, str]
) -> ReportContent:
    serving = tables["launches"]["experiment"].to_pylist() if "launches" in tables else []
    given: dict[str, Any] = {
        name: _without(tables[name], set(serving)) for name in SECTIONS if name in tables
    }
    return ReportContent(
        **given,
        **beside(archive, given["runs"]),
        title=f"Run {run_id}",
        command=f"tilewatch report {run_id}",
        links=links,
        software=software(),
    )


def _warnings(runs: pa.Table) -> list[str]:
    """What a person must know before believing the numbers."""
    rows = runs.to_pylist()
    said = [
        f"experiment {row['experiment']}: {row['status']}: {row['status_reason']}"
        for row in rows
        if row["status"] != "complete"
    ]
    if quarantined := sum(row["quarantined_rows"] for row in rows):
        said.append(f"{quarantined} rows are in quarantine: tilewatch query 'SELECT * FROM quarantine'")
    if any(row["control_status"] == "insufficient" for row in rows):
        pairs = sum(row["control_pairs"] for row in rows)
        said.append(f"A/A control: insufficient ({pairs} pairs, 20 an experiment are needed)")
    return said
