"""Ingest: captures of what already lies on a disk, stored raw, read, validated, accounted for by file."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import conform, from_rows, schema
from tilewatch.infra.archive import Archive
from tilewatch.infra.progress import current
from tilewatch.infra.settings import Settings
from tilewatch.infra.tables.scope import refuse_duplicates
from tilewatch.tasks.analyse.savings.exposed import exposed_times
from tilewatch.tasks.analyse.savings.phases import outside_stages, phase_costs
from tilewatch.tasks.collect.archive import archive_capture, capture_prefix
from tilewatch.tasks.collect.manifest import NAME, Manifest, parse_manifest, read_manifest
from tilewatch.tasks.ingest.answers import Answer, answers
from tilewatch.tasks.ingest.captures import IngestedCapture, Skipped, ingest_path
from tilewatch.tasks.ingest.known_files import KnownFiles
from tilewatch.tasks.read.captures.ingested_capture import FileAccount, IngestedTables, read_ingested
from tilewatch.tasks.validate.run import Validator


@dataclass(frozen=True)
class IngestedFiles:
    """What became of one capture: where it is, whether it was new, every file's account, its self-checks.

    ``held_by`` is the capture that holds all of its files already: this one is not stored then.
    """

    capture: IngestedCapture
    raw_prefix: str
    created: bool
    account: tuple[FileAccount, ...]
    checks: pa.Table
    refused_by_validation: int
    held_by: str | None = None


@dataclass(frozen=True)
class Failed:
    """A capture of which nothing was stored: where its files lie, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class IngestReport:
    """What became of all given paths."""

    captures: tuple[IngestedFiles, ...]
    skipped: tuple[Skipped, ...]
    failed: tuple[Failed, ...] = ()
    answers: tuple[Answer, ...] = ()


@dataclass
class _Read:
    """One capture that was read. ``copy`` says that an equal one came before it in this ingest."""

    capture: IngestedCapture
    prefix: str
    found: IngestedTables
    created: bool = True
    copy: bool = False
    held_by: str | None = None

    @property
    def stays(self) -> bool:
        return not self.copy and self.held_by is None


@dataclass
class _Work:
    """What an ingest has at hand: the archive (None in a dry run), a folder, the captures read so far."""

    archive: Archive | None
    folder: Path
    read: list[_Read] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    known: dict[str, KnownFiles] = field(default_factory=dict)
    stored: dict[str, dict[str, object]] = field(default_factory=dict)


def ingest_paths(
    settings: Settings, archive: Archive | None, paths: Sequence[Path], build: str | None
) -> IngestReport:
    """Make captures of ``paths``, store and read them; without ``archive`` nothing is stored (dry run).

    Every capture is stored completely or not at all: one that cannot be read, or whose rows contradict their
    contract, is named in ``failed`` and the rest goes on. Equal captures are one, and files whose kernels
    another capture of the build holds are not stored again. Ingesting the same bytes again is a no-op. Raises
    ArchiveError for an unsafe archive and FileNotFoundError where there is nothing.
    """
    settings.prepare()
    current().stage("ingest", len(paths) + 1)
    skipped: list[Skipped] = []
    with (
        tempfile.TemporaryDirectory(dir=settings.spool_folder, prefix=".ingest-") as folder,
        Validator(Path(folder)) as validator,
    ):
        work = _Work(archive, Path(folder))
        for path in paths:
            found = ingest_path(path, work.folder / "captures", build=build)
            for capture in found.captures:
                _take(work, capture, path.name)
            skipped += [Skipped(f"{path.name}: {s.name}", s.reason) for s in found.skipped]
            current().advance(str(path))
        refused = _tabulated(work, validator)
    current().advance("tables")
    captures = [
        IngestedFiles(
            r.capture, r.prefix, r.created, r.found.account, r.found.checks,
            refused.get(r.capture.capture_id, 0) if r.stays else 0, r.held_by,
        )
        for r in work.read
    ]  # fmt: skip
    told = answers([r.found.tables for r in work.read if not r.copy])
    return IngestReport(tuple(captures), tuple(skipped), tuple(work.failed), told)


def _take(work: _Work, capture: IngestedCapture, given: str) -> None:
    """Read one capture; what cannot be stored whole goes to the failed ones, with the reason."""
    twin = next((r for r in work.read if r.capture.capture_id == capture.capture_id), None)
    if twin is not None:
        work.read.append(replace(twin, capture=capture, created=False, copy=True))
        return
    try:
        manifest = read_manifest(capture.folder)
        prefix = capture_prefix(capture.folder, manifest) if work.archive is not None else ""
        found = read_ingested(capture.folder, raw_prefix=prefix, spool=work.folder)
        kept = _known(work, capture.build).keep(capture.capture_id, manifest, found)
        tables = kept.found.tables | {"captures": _with_path(work, kept.found.tables["captures"], capture)}
        for name, table in tables.items():
            refuse_duplicates(name, conform(name, table))
        found = replace(kept.found, tables=tables)
        work.read.append(_Read(capture, prefix, found, kept.owner is None, held_by=kept.owner))
    except OSError:
        raise
    except Exception as error:  # one capture never stops the others, whatever is wrong with it
        name = "/".join(part for part in (given, capture.path) if part)
        work.failed.append(Failed(name, f"{type(error).__name__}: {error}"))


def _known(work: _Work, build: str) -> KnownFiles:
    """Which capture of the build holds which bytes: those stored before and those read now."""
    if build not in work.known:
        rows = []
        if work.archive is not None:
            wanted = [("status", "==", "ingested"), ("build", "==", build)]
            rows = work.archive.tables.scan("captures", wanted).to_pylist()
        work.stored |= {row["capture_id"]: row for row in rows}

        def manifest_of(capture_id: str) -> Manifest:
            here = work.folder / "captures" / capture_id
            if work.archive is None or here.is_dir():
                return read_manifest(here)
            key = f"{work.stored[capture_id]['raw_prefix']}/{NAME}"
            return parse_manifest(work.archive.objects.get(key), key)

        work.known[build] = KnownFiles(manifest_of, rows)
    return work.known[build]


def _with_path(work: _Work, captures: pa.Table, capture: IngestedCapture) -> pa.Table:
    """The row of ``captures`` with the folder of its files; that of the first ingest stays."""
    stored = work.stored.get(capture.capture_id)
    path = capture.path or None if stored is None else stored["path"]
    (row,) = captures.to_pylist()
    return from_rows("captures", [{**row, "path": path}])


def _tabulated(work: _Work, validator: Validator) -> dict[str, int]:
    """Validate the tables of all captures at once, store raw files, then tables; refused rows by capture."""
    new = [r for r in work.read if r.stays]
    if not new:
        return {}
    tables = _tables([r.found for r in new])
    quarantine = [tables.pop("quarantine")] if "quarantine" in tables else []
    validated = validator.validate(tables)
    if work.archive is not None:
        for one in new:
            one.created = archive_capture(one.capture.folder, work.archive.objects).created
        stored = validated.tables | {
            "quarantine": pa.concat_tables([*quarantine, validated.quarantine]),
            "checks": pa.concat_tables([*(one.found.checks for one in new), validated.checks]),
        }
        # What the tables say of captures that were there already may still be true.
        work.archive.tables.write_run(stored, unless_same=not all(one.created for one in new))
    counted = pc.value_counts(validated.quarantine["capture_id"]).to_pylist()
    return {row["values"]: row["counts"] for row in counted}


def _tables(found: Sequence[IngestedTables]) -> dict[str, pa.Table]:
    """The tables of all captures, and what follows from their kernels."""
    parts: dict[str, list[pa.Table]] = defaultdict(list)
    for one in found:
        for name, table in one.tables.items():
            parts[name].append(table)
    tables = {name: pa.concat_tables(some) for name, some in parts.items()}
    if "kernels" in tables:
        steps = tables.get("stage_steps", schema("stage_steps").empty_table())
        tables["phase_costs"] = phase_costs(tables["kernels"], steps)
        tables["exposed_times"] = exposed_times(outside_stages(tables["kernels"], steps))
    return tables
