"""Ingest: captures of what already lies on a disk, stored raw, read, validated, accounted for by file."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import schema
from tilewatch.infra.archive import Archive
from tilewatch.infra.progress import current
from tilewatch.infra.settings import Settings
from tilewatch.tasks.analyse.savings.exposed import exposed_times
from tilewatch.tasks.analyse.savings.phases import outside_stages, phase_costs
from tilewatch.tasks.collect.archive import archive_capture
from tilewatch.tasks.ingest.captures import IngestedCapture, Skipped, ingest_path
from tilewatch.tasks.read.captures.ingested_capture import FileAccount, IngestedTables, read_ingested
from tilewatch.tasks.validate.run import Validator


@dataclass(frozen=True)
class IngestedFiles:
    """What became of one capture: where it is, whether it was new, every file's account, its self-checks."""

    capture: IngestedCapture
    raw_prefix: str
    created: bool
    account: tuple[FileAccount, ...]
    checks: pa.Table
    refused_by_validation: int


@dataclass(frozen=True)
class IngestReport:
    """What became of all given paths."""

    captures: tuple[IngestedFiles, ...]
    skipped: tuple[Skipped, ...]


def ingest_paths(
    settings: Settings, archive: Archive | None, paths: Sequence[Path], build: str | None
) -> IngestReport:
    """Make captures of ``paths``, store and read them; without ``archive`` nothing is stored (dry run).

    Ingesting the same bytes again is a no-op. Raises ArchiveError for an unsafe archive and FileNotFoundError
    where there is nothing.
    """
    settings.prepare()
    current().stage("ingest", len(paths) + 1)
    read: list[_Read] = []
    skipped: list[Skipped] = []
    with (
        tempfile.TemporaryDirectory(dir=settings.spool_folder, prefix=".ingest-") as work,
        Validator(Path(work)) as validator,
    ):
        for path in paths:
            found = ingest_path(path, Path(work) / "captures", build=build)
            read += [_stored(archive, capture, Path(work)) for capture in found.captures]
            skipped += [Skipped(f"{path.name}: {s.name}", s.reason) for s in found.skipped]
            current().advance(str(path))
        known = not all(r.created for r in read)
        refused = _tabulated(archive, [r.found for r in read], validator, known) if read else {}
    current().advance("tables")
    captures = [
        IngestedFiles(r.capture, r.prefix, r.created, r.found.account, r.found.checks, refused.get(r.id, 0))
        for r in read
    ]
    return IngestReport(tuple(captures), tuple(skipped))


@dataclass(frozen=True)
class _Read:
    capture: IngestedCapture
    prefix: str
    created: bool
    found: IngestedTables

    @property
    def id(self) -> str:
        return self.capture.capture_id


def _stored(archive: Archive | None, capture: IngestedCapture, work: Path) -> _Read:
    prefix, created = "", True
    if archive is not None:
        stored = archive_capture(capture.folder, archive.objects)
        prefix, created = stored.prefix, stored.created
    return _Read(capture, prefix, created, read_ingested(capture.folder, raw_prefix=prefix, spool=work))


def _tabulated(
    archive: Archive | None, found: Sequence[IngestedTables], validator: Validator, known: bool
) -> dict[str, int]:
    """Validate the tables of all captures at once and store them; refused rows by capture.

    ``known``: some captures were there already, and what the tables say of them may still be true.
    """
    parts: dict[str, list[pa.Table]] = defaultdict(list)
    for one in found:
        for name, table in one.tables.items():
            parts[name].append(table)
    tables = {name: pa.concat_tables(some) for name, some in parts.items()}
    if "kernels" in tables:
        steps = tables.get("stage_steps", schema("stage_steps").empty_table())
        tables["phase_costs"] = phase_costs(tables["kernels"], steps)
        tables["exposed_times"] = exposed_times(outside_stages(tables["kernels"], steps))
    quarantine = [tables.pop("quarantine")] if "quarantine" in tables else []
    validated = validator.validate(tables)
    if archive is not None:
        stored = validated.tables | {
            "quarantine": pa.concat_tables([*quarantine, validated.quarantine]),
            "checks": pa.concat_tables([*(one.checks for one in found), validated.checks]),
        }
        archive.tables.write_run(stored, unless_same=known)
    counted = pc.value_counts(validated.quarantine["capture_id"]).to_pylist()
    return {row["values"]: row["counts"] for row in counted}
