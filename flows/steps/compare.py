"""Compare archived builds: find their runs, judge them, validate, store and publish the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.flows.steps.baselines import ARMED, TABLES, baseline_runs, refuse_unarmed
from tilewatch.flows.steps.report import beside, keep_pages, mark_of, software
from tilewatch.flows.steps.run_names import NothingToCompareError, newest
from tilewatch.infra.archive import Archive
from tilewatch.infra.settings import Settings
from tilewatch.tasks.analyse.comparison.anchors import anchor_kernels
from tilewatch.tasks.analyse.comparison.compare import compare_builds
from tilewatch.tasks.analyse.statistics.spread import between_lease_spread
from tilewatch.tasks.analyse.tables import RunTables, join
from tilewatch.tasks.publish.address import Published, publish_comparison
from tilewatch.tasks.publish.run_report.content import ReportContent
from tilewatch.tasks.publish.run_report.report import render_report
from tilewatch.tasks.validate.page import render_page
from tilewatch.tasks.validate.run import Validated, Validator


@dataclass(frozen=True)
class Compared:
    """A published comparison: its rows and where they are."""

    rows: pa.Table
    published: Published
    report: Path


def compare_archived(
    settings: Settings,
    archive: Archive,
    baseline: str,
    candidate: str,
    *,
    second_lease: str | None = None,
    overrides: Sequence[str] = (),
) -> Compared:
    """Compare the newest run of each experiment of ``candidate`` with that of ``baseline`` and publish it.

    A name is a run id or a build label; ``@baseline`` is the approved one of the candidate's device class.
    A candidate that is a run answers for the experiments and arms it planned, a build for all of the other.
    The candidate's run before the newest one of the same build, or ``second_lease``, confirms. The floor
    between leases comes from all archived runs of builds that were measured more than once on the same
    device class; the drift of the anchor kernels, which both builds share, bounds it from below. Raises
    NothingToCompareError.
    """
    if baseline == ARMED:
        refuse_unarmed(archive)
    runs = archive.tables.scan("runs")
    candidate_ids = newest(runs, candidate)
    first = runs.filter(pc.equal(runs["run_id"], candidate_ids[0])).slice(0, 1).to_pylist()[0]
    baseline, base_ids = baseline_runs(archive, baseline, first["device_class"], first["agent"])
    judged = [*base_ids, *candidate_ids]
    second_ids = [second_lease] if second_lease else _before(runs, candidate, judged)
    if set(base_ids) & set(candidate_ids):
        raise NothingToCompareError(
            f"{baseline} and {candidate} stand for the same run", "Name two builds, or two runs"
        )
    with Validator(settings.spool_folder) as validator:
        base, new = _tables(archive, base_ids), _tables(archive, candidate_ids)
        if candidate in candidate_ids:
            base = base.asked_of(new)
        rows = compare_builds(
            base,
            new,
            baseline=baseline,
            candidate_name=candidate,
            overrides=overrides,
            anchors=anchor_kernels(base, new),
            history=_history(archive, runs, new, without=[*judged, *second_ids]),
            second_lease=_tables(archive, second_ids) if second_ids else None,
        )
        validated = validator.validate({"comparisons": rows})
    return _published(settings, archive, validated, base, new)


def _before(runs: pa.Table, name: str, judged: Sequence[str]) -> list[str]:
    """The runs of the same build measured in the lease before, which none of ``judged`` is: what confirms."""
    if name in judged:
        return []
    older = runs.filter(
        pc.and_(
            pc.and_(pc.equal(runs["build"], name), pc.equal(runs["status"], "complete")),
            pc.invert(pc.is_in(runs["run_id"], value_set=pa.array(list(judged), pa.string()))),
        )
    )
    latest = older.group_by("experiment").aggregate([("run_id", "max")])
    return sorted(set(latest["run_id_max"].to_pylist()))


def _tables(archive: Archive, run_ids: Sequence[str]) -> RunTables:
    return RunTables(**{t: archive.tables.scan(t, [("run_id", "in", list(run_ids))]) for t in TABLES})


def _history(archive: Archive, runs: pa.Table, candidate: RunTables, without: Sequence[str]) -> pa.Table:
    """Between-lease A/A spread of every archived build on the candidate's device class.

    The runs that are being judged are left out: a floor must not rest on what it judges.
    """
    classes = pa.array(sorted(set(candidate.runs["device_class"].to_pylist())), pa.string())
    alike = runs.filter(pc.is_in(runs["device_class"], value_set=classes))
    usable = alike.filter(pc.not_equal(alike["status"], "void"))
    ids = sorted(set(usable["run_id"].to_pylist()) - set(without))
    return between_lease_spread([_tables(archive, ids)] if ids else [])


def _published(
    settings: Settings, archive: Archive, validated: Validated, base: RunTables, candidate: RunTables
) -> Compared:
    kept = validated.tables["comparisons"]
    title = f"{kept['candidate'][0]} against {kept['baseline'][0]}"
    pages = {
        "report.html": _report(archive, title, kept, join([base, candidate])),
        "validation.html": render_page(
            validated.results,
            title=f"{mark_of(candidate.runs)}Validation of {title}",
            report_href="report.html",
        ),
    }
    published = publish_comparison(
        archive.objects,
        kept,
        plan_hashes=join([base, candidate]).distinct("plan_hash"),
        report_html=pages["report.html"],
        validation_html=pages["validation.html"],
    )
    archive.tables.write("comparisons", published.comparison)
    archive.tables.write("quarantine", validated.quarantine)
    archive.tables.write("checks", validated.checks)
    shown = {name: archive.objects.get(f"{published.address}/{name}").decode() for name in pages}
    folder = keep_pages(settings, published.address, shown)
    return Compared(published.comparison, published, folder / "report.html")


def _report(archive: Archive, title: str, rows: pa.Table, both: RunTables) -> str:
    of_both = [("run_id", "in", list(both.distinct("run_id")))]
    baseline, name = rows["baseline"][0].as_py(), rows["candidate"][0].as_py()
    return render_report(
        ReportContent(
            runs=both.runs,
            captures=both.captures,
            points=both.points,
            samples=both.samples,
            alignments=both.alignments,
            comparisons=rows,
            **{name: archive.tables.scan(name, of_both) for name in ("tilings", "cliffs", "ledger")},
            **beside(archive, both.runs),
            title=title,
            command=f"tilewatch compare {baseline} {name}",
            links={"validation": "validation.html"},
            software=software(),
        )
    )
