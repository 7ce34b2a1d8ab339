"""What is published: the one registry that retention, re-analysis, reports and baselines ask.

Operators, servers and profiles are families of one lifecycle (``tasks/publish/families.py``): a comparison is
published once under a version of its own, old versions stay, and what they stand on is never let go. A recipe
that judges builds its rows and its page and hands them over::

    with Validator(settings.spool_folder) as validator:
        validated = validator.validate({SERVING.table: rows})
    kept = publish(settings, archive, SERVING, validated, report, plan_hashes=hashes)
    kept.rows               # as published, with their version, whoever was first
    kept.published.address  # comparisons/<baseline>/<candidate>/serving/v<N>
    kept.report             # the page on this host

A new family adds an entry to FAMILIES and a contract with its columns; then ``publications`` knows it and
``needed`` keeps what it stands on. With its recipe in ``judge_again.RECIPES`` it is judged again too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.flows.steps.baselines import approvals
from tilewatch.flows.steps.pages import keep_pages, mark_of
from tilewatch.infra.archive import Archive
from tilewatch.infra.settings import Settings
from tilewatch.tasks.publish.address import (
    Published,
    marked_runs,
    publish_comparison,
    published_addresses,
)
from tilewatch.tasks.publish.families import FAMILIES, Family
from tilewatch.tasks.sql import sql
from tilewatch.tasks.validate.page import render_page
from tilewatch.tasks.validate.run import Validated

REPORT, VALIDATION = "report.html", "validation.html"

_PUBLICATIONS = """
SELECT baseline, candidate, version, {0} AS base_ids, {1} AS candidate_ids,
       list_sort(list_distinct(list_transform(flatten(list(overrides)), lambda o: split_part(o, ':', 1))))
           AS overrides
FROM rows WHERE {published} GROUP BY baseline, candidate, version, {0}, {1} ORDER BY ALL
"""


@dataclass(frozen=True)
class Publication:
    """One published version: the runs (or captures) of both sides, and the keys that it chose to ignore."""

    family: Family
    baseline: str
    candidate: str
    version: int
    base_ids: tuple[str, ...]
    candidate_ids: tuple[str, ...]
    overrides: tuple[str, ...]

    @property
    def stands_on(self) -> tuple[str, ...]:
        """Everything that must not go while this is published."""
        return (*self.base_ids, *self.candidate_ids)

    @property
    def address(self) -> str:
        """Where it lies in the object store."""
        return self.family.address(self.baseline, self.candidate, self.version)


@dataclass(frozen=True)
class Kept:
    """A comparison after publishing: its rows with their version, where it is, its page on this host."""

    rows: pa.Table
    published: Published
    report: Path


def publish(
    settings: Settings,
    archive: Archive,
    family: Family,
    validated: Validated,
    report: str,
    *,
    plan_hashes: Sequence[str] = (),
) -> Kept:
    """Publish and store the validated comparison of ``family``; ``report`` is its page (HTML).

    The same comparison again is the same version and changes nothing. Raises PublishError where the table
    holds no rows or more than one comparison.
    """
    rows = validated.tables[family.table]
    title = f"{rows['candidate'][0]} against {rows['baseline'][0]}" if rows.num_rows else ""
    pages = {
        REPORT: report,
        VALIDATION: render_page(
            validated.results, title=f"{mark_of(rows)}Validation of {title}", report_href=REPORT
        ),
    }
    published = publish_comparison(
        archive.objects,
        rows,
        family=family,
        plan_hashes=plan_hashes,
        pages=pages,
        taken=_taken(archive, family, rows),
    )
    archive.tables.write(family.table, published.comparison)
    archive.tables.write("quarantine", validated.quarantine)
    archive.tables.write("checks", validated.checks)
    shown = {name: archive.objects.get(f"{published.address}/{name}").decode() for name in pages}
    folder = keep_pages(settings, published.address, shown)
    return Kept(published.comparison, published, folder / REPORT)


def publications(archive: Archive) -> list[Publication]:
    """Every published comparison of every family, by family, pair and version."""
    found = []
    for family in FAMILIES:
        query = _PUBLICATIONS.format(*family.stands_on, published=family.published)
        for row in sql(query, {"rows": archive.tables.scan(family.table)}).to_pylist():
            plain: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in row.items()
            }
            found.append(Publication(family=family, **plain))
    return found


def version_of(archive: Archive, family: Family, baseline: str, candidate: str, version: int) -> pa.Table:
    """Rows of one published version; none where it does not exist."""
    rows = archive.tables.scan(
        family.table,
        [("baseline", "==", baseline), ("candidate", "==", candidate), ("version", "==", version)],
    )
    return sql(f"SELECT * FROM rows WHERE {family.published}", {"rows": rows}).cast(rows.schema)


def needed(archive: Archive) -> dict[str, str]:
    """Runs and captures that something published stands on, with what that is.

    What a publisher left that died before it wrote its table counts too: it is published at its address.
    """
    found: dict[str, str] = {}
    known = publications(archive)
    for one in known:
        found |= dict.fromkeys(one.stands_on, one.address)
    for address in sorted(set(published_addresses(archive.objects)) - {one.address for one in known}):
        found |= dict.fromkeys(marked_runs(archive.objects, address), address)
    for row in approvals(archive).to_pylist():
        found |= dict.fromkeys(row["run_ids"], f"baseline {row['name']}")
    return found


def _taken(archive: Archive, family: Family, rows: pa.Table) -> int:
    """The highest version of the pair in the table: rows from before there was an address have no claim."""
    if not rows.num_rows:
        return 0
    pair = [(name, "==", rows[name][0].as_py()) for name in ("baseline", "candidate")]
    return pc.max(archive.tables.scan(family.table, pair)["version"]).as_py() or 0
