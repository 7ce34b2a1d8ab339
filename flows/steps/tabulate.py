"""From captures to stored tables: read, align, validate in a process of its own, one commit a table."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.flows.steps.run_names import NothingToCompareError
from tilewatch.flows.steps.series import follow
from tilewatch.infra.archive import Archive
from tilewatch.infra.errors import ObjectMissingError
from tilewatch.infra.logs import event
from tilewatch.infra.progress import current
from tilewatch.infra.raw_zone import archived_document, captures_of
from tilewatch.infra.settings import Settings
from tilewatch.tasks.collect.fetch import fetch_capture
from tilewatch.tasks.derive.operators import derive
from tilewatch.tasks.plan.run_document import RunDocument
from tilewatch.tasks.validate.run import Validated, Validator


@dataclass(frozen=True)
class Tabulated:
    """The tables of one run as they were stored, and what validation said of them."""

    document: RunDocument
    tables: dict[str, pa.Table]
    validation: dict[str, Any]


def tabulate_run(
    settings: Settings,
    archive: Archive,
    document: RunDocument,
    captures: Mapping[str, Sequence[tuple[Path, str]]],
    *,
    unless_same: bool = False,
) -> Tabulated:
    """Derive, validate and store every table of a run, then the series it is part of.

    Writing twice leaves each row once; with ``unless_same`` what is there already is not stored anew.
    """
    current().stage("read, validate, store", 3)
    known = (
        archive.tables.scan("ledger", [("build_id", "==", document.build_id)]) if document.serving else None
    )
    with Validator(settings.spool_folder) as validator:
        derived = derive(document, captures, known)
        current().advance("read")
        quarantine = derived.pop("quarantine")
        validated = validator.validate(derived)
    tables = _with_quarantine(validated, quarantine)
    current().advance("validate")
    archive.tables.write_run(tables, unless_same=unless_same)
    follow(archive.tables, [document.run_id])
    current().advance("store")
    event("tabulated", **{name: table.num_rows for name, table in sorted(tables.items()) if table.num_rows})
    return Tabulated(document, tables, validated.results)


def rebuild_run(settings: Settings, archive: Archive, run_id: str) -> Tabulated:
    """Rebuild every table of an archived run from raw alone: nothing is taken from the tables.

    Raises NothingToCompareError if the run was never archived.
    """
    try:
        document = archived_document(archive, run_id)
    except ObjectMissingError as error:
        raise NothingToCompareError(
            f"run {run_id} is not in the archive", "`tilewatch runs` lists what is"
        ) from error
    prefixes = {letter: captures_of(archive, document, letter) for letter in document.experiments}
    current().stage("fetch", sum(len(p) for p in prefixes.values()))
    settings.prepare()
    with tempfile.TemporaryDirectory(dir=settings.spool_folder, prefix=".rebuild-") as work:
        captures: dict[str, list[tuple[Path, str]]] = {letter: [] for letter in document.experiments}
        for letter, found in prefixes.items():
            for prefix in found:
                target = Path(work) / prefix.rsplit("/", 1)[-1]
                fetch_capture(archive.objects, prefix, target)
                captures[letter].append((target, prefix))
                current().advance(prefix)
        return tabulate_run(settings, archive, document, captures, unless_same=True)


def _with_quarantine(validated: Validated, from_readers: pa.Table) -> dict[str, pa.Table]:
    """Stored tables with the quarantine of both stages; ``runs`` counts what validation refused as well."""
    tables = dict(validated.tables)
    refused = {
        row["values"]: row["counts"] for row in pc.value_counts(validated.quarantine["run_id"]).to_pylist()
    }
    runs = tables["runs"]
    more = pa.array([refused.get(run, 0) for run in runs["run_id"].to_pylist()], pa.int64())
    index = runs.schema.get_field_index("quarantined_rows")
    counted = pc.add(runs["quarantined_rows"], more)
    tables["runs"] = runs.set_column(index, runs.schema.field(index), counted)
    tables["quarantine"] = pa.concat_tables([from_readers, validated.quarantine])
    tables["checks"] = validated.checks
    return tables
