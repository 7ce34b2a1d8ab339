"""Compare the serving experiments of two archived builds: judge every arm, validate, store and publish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.flows.steps.published import VALIDATION, Kept, publish
from tilewatch.flows.steps.report import software
from tilewatch.flows.steps.sides import Ids, Sides, both_sides
from tilewatch.infra.archive import Archive
from tilewatch.infra.settings import Settings
from tilewatch.tasks.analyse.comparison.serving_compare import ServingRequest, compare_serving_builds
from tilewatch.tasks.analyse.comparison.serving_groups import OVERRIDABLE
from tilewatch.tasks.analyse.comparison.serving_values import (
    ServingTables,
    between_lease_history,
    launch_values,
)
from tilewatch.tasks.publish.families import SERVING
from tilewatch.tasks.publish.serving_report.content import ServingContent
from tilewatch.tasks.publish.serving_report.report import serving_report
from tilewatch.tasks.publish.serving_report.words import builds_sentence
from tilewatch.tasks.validate.run import Validator

TABLES = tuple(f.name for f in fields(ServingTables))


@dataclass(frozen=True)
class ServingCompared(Kept):
    """The published rows of ``serving_comparisons`` with the sentence about the worst.

    ``only``: neither side measured an operator, so that there is no other comparison.
    """

    sentence: str
    only: bool


def compare_serving_archived(
    settings: Settings,
    archive: Archive,
    baseline: str,
    candidate: str,
    *,
    overrides: Sequence[str] = (),
    ids: Ids | None = None,
) -> ServingCompared | None:
    """The newest launches of ``candidate`` against those of ``baseline``, arm by arm, published.

    None where a side has none. Names and ``ids`` stand for what they do in ``compare_archived``. Between
    leases the floor rests on all other archived launches on the same device class. Raises
    NothingToCompareError.
    """
    sides = both_sides(archive, baseline, candidate, ids)
    base, new = _tables(archive, sides.base_ids), _tables(archive, sides.candidate_ids)
    if not base.launches.num_rows or not new.launches.num_rows:
        return None
    others = sides.others()
    with Validator(settings.spool_folder) as validator:
        request = ServingRequest(
            sides.baseline,
            candidate,
            overrides=[key for key in overrides if key in OVERRIDABLE],
            history=between_lease_history(launch_values(_tables(archive, others))) if others else None,
            base_components=sides.components(sides.base_ids),
            candidate_components=sides.components(sides.candidate_ids),
        )
        validated = validator.validate({SERVING.table: compare_serving_builds(base, new, request)})
    page = serving_report(_content(archive, sides, (base, new), validated.tables[SERVING.table]))
    kept = publish(settings, archive, SERVING, validated, page, plan_hashes=sides.plan_hashes())
    points = archive.tables.scan("points", [("run_id", "in", list(sides.ids))], columns=["run_id"])
    return ServingCompared(
        **{f.name: getattr(kept, f.name) for f in fields(kept)},
        sentence=builds_sentence(kept.rows),
        only=points.num_rows == 0,
    )


def _tables(archive: Archive, run_ids: Sequence[str]) -> ServingTables:
    return ServingTables(**{t: archive.tables.scan(t, [("run_id", "in", list(run_ids))]) for t in TABLES})


def _content(
    archive: Archive, sides: Sides, tables: tuple[ServingTables, ServingTables], rows: pa.Table
) -> ServingContent:
    """Both builds on one page: an arm is named with its build."""
    both = {name: pa.concat_tables([getattr(side, name) for side in tables]) for name in TABLES}
    own = sides.rows(sides.ids)
    costs = archive.tables.scan("phase_costs", [("run_id", "in", list(sides.ids))])
    return ServingContent(
        runs=own.filter(pc.is_in(own["experiment"], value_set=pc.unique(both["launches"]["experiment"]))),
        launches=_by_build(both["launches"]),
        requests=both["requests"],
        serving_metrics=both["serving_metrics"],
        phase_costs=_by_build(costs),
        comparisons=rows,
        title=f"{sides.candidate} against {sides.baseline}: serving",
        sentence=builds_sentence(rows),
        command=f"tilewatch compare {sides.baseline} {sides.candidate}",
        links={"validation": VALIDATION},
        software=software(),
    )


def _by_build(table: pa.Table) -> pa.Table:
    named = pc.binary_join_element_wise(table["arm"], table["build"], " · ")
    index = table.column_names.index("arm")
    return table.set_column(index, table.schema.field(index), named)
