"""Compare archived builds: find their runs, judge every point, validate, store and publish the verdicts."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.flows.steps.baselines import ARMED, TABLES, refuse_unarmed
from tilewatch.flows.steps.published import VALIDATION, Kept, publish
from tilewatch.flows.steps.report import beside, software
from tilewatch.flows.steps.sides import Ids, Sides, both_sides
from tilewatch.infra.archive import Archive
from tilewatch.infra.settings import Settings
from tilewatch.tasks.analyse.comparison.anchors import anchor_kernels
from tilewatch.tasks.analyse.comparison.compare import compare_builds
from tilewatch.tasks.analyse.statistics.spread import between_lease_spread
from tilewatch.tasks.analyse.tables import RunTables, join
from tilewatch.tasks.publish.comparison_report.causes import with_causes
from tilewatch.tasks.publish.families import OPERATORS
from tilewatch.tasks.publish.run_report.content import ReportContent
from tilewatch.tasks.publish.run_report.report import render_report
from tilewatch.tasks.validate.run import Validator


def compare_archived(
    settings: Settings,
    archive: Archive,
    baseline: str,
    candidate: str,
    *,
    second_lease: str | None = None,
    overrides: Sequence[str] = (),
    ids: Ids | None = None,
) -> Kept:
    """Compare the newest run of each experiment of ``candidate`` with that of ``baseline`` and publish it.

    A name is a run id or a build label; ``@baseline`` is the approved one of the candidate's device class;
    ``ids`` are the runs where they are known. A candidate that is a run answers for the experiments and arms
    it planned, a build for all of the other. The candidate's run before the newest one of the same build, or
    ``second_lease``, confirms. The floor between leases comes from all archived runs of builds that were
    measured more than once on the same device class; the drift of the anchor kernels, which both builds
    share, bounds it from below. Raises NothingToCompareError.
    """
    if baseline == ARMED:
        refuse_unarmed(archive)
    sides = both_sides(archive, baseline, candidate, ids)
    second_ids = [second_lease] if second_lease else _before(sides)
    others = sides.others(without=second_ids)
    base, new = _tables(archive, sides.base_ids), _tables(archive, sides.candidate_ids)
    with Validator(settings.spool_folder) as validator:
        if candidate in sides.candidate_ids:
            base = base.asked_of(new)
        rows = compare_builds(
            base,
            new,
            baseline=sides.baseline,
            candidate_name=candidate,
            overrides=overrides,
            anchors=anchor_kernels(base, new),
            history=between_lease_spread([_tables(archive, others)] if others else []),
            second_lease=_tables(archive, second_ids) if second_ids else None,
        )
        of_both = [("run_id", "in", list(sides.ids))]
        both = (archive.tables.scan(name, of_both) for name in ("alignments", "tilings"))
        validated = validator.validate({OPERATORS.table: with_causes(rows, *both)})
    report = _report(archive, validated.tables[OPERATORS.table], join([base, new]))
    return publish(settings, archive, OPERATORS, validated, report, plan_hashes=sides.plan_hashes())


def _before(sides: Sides) -> list[str]:
    """The runs of the same build measured in the lease before, none of them judged: what confirms."""
    if sides.candidate in sides.ids:
        return []
    runs = sides.runs
    older = runs.filter(
        pc.and_(
            pc.and_(pc.equal(runs["build"], sides.candidate), pc.equal(runs["status"], "complete")),
            pc.invert(pc.is_in(runs["run_id"], value_set=pa.array(sides.ids, pa.string()))),
        )
    )
    latest = older.group_by("experiment").aggregate([("run_id", "max")])
    return sorted(set(latest["run_id_max"].to_pylist()))


def _tables(archive: Archive, run_ids: Sequence[str]) -> RunTables:
    return RunTables(**{t: archive.tables.scan(t, [("run_id", "in", list(run_ids))]) for t in TABLES})


def _report(archive: Archive, rows: pa.Table, both: RunTables) -> str:
    of_both = [("run_id", "in", list(both.distinct("run_id")))]
    baseline, candidate = (rows[name][0].as_py() for name in ("baseline", "candidate"))
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
            title=f"{candidate} against {baseline}",
            command=f"tilewatch compare {baseline} {candidate}",
            links={"validation": VALIDATION},
            software=software(),
        )
    )
