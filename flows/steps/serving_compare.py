"""Compare the serving experiments of two archived builds: judge every arm, validate, store, keep a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.flows.steps.baselines import baseline_runs
from tilewatch.flows.steps.report import publish_pages, software
from tilewatch.flows.steps.run_names import NothingToCompareError, newest
from tilewatch.infra.archive import Archive
from tilewatch.infra.settings import Settings
from tilewatch.tasks.analyse.comparison.serving_compare import ServingRequest, compare_serving_builds
from tilewatch.tasks.analyse.comparison.serving_groups import OVERRIDABLE
from tilewatch.tasks.analyse.comparison.serving_values import (
    ServingTables,
    between_lease_history,
    launch_values,
)
from tilewatch.tasks.publish.serving_report.content import ServingContent
from tilewatch.tasks.publish.serving_report.report import serving_report
from tilewatch.tasks.publish.serving_report.words import builds_sentence
from tilewatch.tasks.validate.run import Validated, Validator

PAGE = "serving.html"
TABLES = tuple(f.name for f in fields(ServingTables))


@dataclass(frozen=True)
class ServingCompared:
    """Rows of ``serving_comparisons``, the sentence about the worst, the page on this host.

    ``only``: neither side measured an operator, so that there is no other comparison.
    """

    rows: pa.Table
    sentence: str
    report: Path
    only: bool


def compare_serving_archived(
    settings: Settings, archive: Archive, baseline: str, candidate: str, *, overrides: Sequence[str] = ()
) -> ServingCompared | None:
    """The newest launches of ``candidate`` against those of ``baseline``, arm by arm.

    None where a side has none. Names stand for what they do in ``compare_archived``. Between leases the floor
    rests on all other archived launches on the same device class. Raises NothingToCompareError.
    """
    runs = archive.tables.scan("runs")
    candidate_ids = newest(runs, candidate)
    first = runs.filter(pc.equal(runs["run_id"], candidate_ids[0])).slice(0, 1).to_pylist()[0]
    baseline, base_ids = baseline_runs(archive, baseline, first["device_class"], first["agent"])
    if set(base_ids) & set(candidate_ids):
        raise NothingToCompareError(
            f"{baseline} and {candidate} stand for the same run", "Name two builds, or two runs"
        )
    base, new = _tables(archive, base_ids), _tables(archive, candidate_ids)
    if not base.launches.num_rows or not new.launches.num_rows:
        return None
    with Validator(settings.spool_folder) as validator:
        request = ServingRequest(
            baseline,
            candidate,
            overrides=[key for key in overrides if key in OVERRIDABLE],
            history=_history(archive, runs, first["device_class"], without=[*base_ids, *candidate_ids]),
            base_components=_components(runs, base_ids),
            candidate_components=_components(runs, candidate_ids),
        )
        compared = compare_serving_builds(base, new, request)
        rows = _stored(archive, validator.validate({"serving_comparisons": compared}))
    ids = [*base_ids, *candidate_ids]
    page = serving_report(_content(archive, runs, ids, (base, new), rows, (baseline, candidate)))
    folder = publish_pages(settings, archive, f"{candidate}-against-{baseline}", {PAGE: page})
    points = archive.tables.scan("points", [("run_id", "in", ids)], columns=["run_id"])
    return ServingCompared(rows, builds_sentence(rows), folder / PAGE, points.num_rows == 0)


def _tables(archive: Archive, run_ids: Sequence[str]) -> ServingTables:
    return ServingTables(**{t: archive.tables.scan(t, [("run_id", "in", list(run_ids))]) for t in TABLES})


def _components(runs: pa.Table, run_ids: Sequence[str]) -> dict[str, str]:
    own = runs.filter(pc.is_in(runs["run_id"], value_set=pa.array(list(run_ids), pa.string())))
    return dict(own["build_components"][0].as_py() or [])


def _history(archive: Archive, runs: pa.Table, device_class: str, without: Sequence[str]) -> pa.Table | None:
    """Between-lease spread of the other archived launches: a floor must not rest on what it judges."""
    alike = runs.filter(pc.equal(runs["device_class"], device_class))
    ids = sorted(set(alike["run_id"].to_pylist()) - set(without))
    return between_lease_history(launch_values(_tables(archive, ids))) if ids else None


def _stored(archive: Archive, validated: Validated) -> pa.Table:
    kept = validated.tables["serving_comparisons"]
    archive.tables.write("serving_comparisons", kept)
    archive.tables.write("quarantine", validated.quarantine)
    archive.tables.write("checks", validated.checks)
    return kept


def _content(
    archive: Archive,
    runs: pa.Table,
    ids: Sequence[str],
    sides: tuple[ServingTables, ServingTables],
    rows: pa.Table,
    names: tuple[str, str],
) -> ServingContent:
    """Both builds on one page: an arm is named with its build."""
    both = {name: pa.concat_tables([getattr(side, name) for side in sides]) for name in TABLES}
    own = runs.filter(pc.is_in(runs["run_id"], value_set=pa.array(list(ids), pa.string())))
    costs = archive.tables.scan("phase_costs", [("run_id", "in", list(ids))])
    return ServingContent(
        runs=own.filter(pc.is_in(own["experiment"], value_set=pc.unique(both["launches"]["experiment"]))),
        launches=_by_build(both["launches"]),
        requests=both["requests"],
        serving_metrics=both["serving_metrics"],
        phase_costs=_by_build(costs),
        comparisons=rows,
        title=f"{names[1]} against {names[0]}: serving",
        sentence=builds_sentence(rows),
        command=f"tilewatch compare {names[0]} {names[1]}",
        software=software(),
    )


def _by_build(table: pa.Table) -> pa.Table:
    named = pc.binary_join_element_wise(table["arm"], table["build"], " · ")
    index = table.column_names.index("arm")
    return table.set_column(index, table.schema.field(index), named)
