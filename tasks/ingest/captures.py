"""Captures made of what already lies on a disk: one capture a profiler run, its files untouched.

The same bytes give the same capture id: nothing of the moment or of the place goes into a capture. Identity
that the files do not state stays ``unknown``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tilewatch.tasks.collect.manifest import NAME, read_manifest, write_manifest
from tilewatch.tasks.collect.unpack import UnpackLimits, is_archive, unpack
from tilewatch.tasks.ingest.recognise import Found, Kind, recognise
from tilewatch.tasks.read.host.build_identity import UNKNOWN, Environment, read_environment

INGESTED = "ingested"
CAPTURE_SCHEMA_VERSION = 1
_PROFILER_INFO = re.compile(r"profiler_info(_\d+)?\.json")


@dataclass(frozen=True)
class Skipped:
    """A file of the given path that no capture took, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class IngestedCapture:
    """A capture folder that is ready to be archived. ``files`` counts those taken from the given path.

    ``path`` is the folder below the given one where they lay, empty at its top: no part of the capture, since
    the same bytes are the same capture wherever they lie.
    """

    folder: Path
    capture_id: str
    build: str
    kinds: tuple[str, ...]
    files: int
    path: str = ""


@dataclass(frozen=True)
class Ingested:
    """What one given path became. ``skipped`` are files of it that are in no capture."""

    given: str
    captures: tuple[IngestedCapture, ...]
    skipped: tuple[Skipped, ...]


def ingest_path(
    given: Path, workspace: Path, *, build: str | None = None, limits: UnpackLimits | None = None
) -> Ingested:
    """Make captures of ``given`` (folder, file or archive) below ``workspace``; nothing is stored.

    ``build`` is the label of the build where the caller knows it. A capture of the same bytes that is there
    already is kept. Raises ArchiveError for an unsafe archive, FileNotFoundError where there is nothing.
    """
    workspace.mkdir(parents=True, exist_ok=True)
    unpacked: Path | None = None
    try:
        if given.is_file() and is_archive(given):
            unpacked = _fresh(workspace / f".unpacked-{given.name}")
            unpack(given, unpacked, limits)
        found = recognise(unpacked or given)
        groups = _captures(found)
        captures = [_make(files, build, workspace) for files in groups]
    finally:
        if unpacked is not None:
            shutil.rmtree(unpacked, ignore_errors=True)
    skipped = [Skipped(f.name, f.reason or "no capture takes it") for f in found if f.kind is None]
    if not captures and not skipped:
        skipped = [Skipped(given.name, "holds no file")]
    return Ingested(given.name, tuple(captures), tuple(skipped))


def _captures(found: Iterable[Found]) -> list[list[Found]]:
    """Files by capture: one a profiler run. Logs and results join the only run, else they are their own.

    Version files describe the host, so every capture has them.
    """
    kept = [f for f in found if f.kind is not None]
    runs: dict[str, list[Found]] = {}
    for file in kept:
        if file.kind is Kind.PROFILER:
            runs.setdefault(file.root or "", []).append(file)
    version_files = [f for f in kept if f.kind is Kind.ENVIRONMENT]
    others = [f for f in kept if f.kind in (Kind.LOG, Kind.SERVING)]
    groups = list(runs.values())
    if others or not groups:
        if len(groups) == 1:
            groups[0] += others
        elif others or version_files:
            groups.append(others)
    return [group + version_files for group in groups]


def _environment(found: Iterable[Found]) -> Environment:
    """What the version files of a capture state; without them, what its profiler says of the process.

    Only without them: runs of one host are one build, whatever else some of them say.
    """
    files = sorted(found, key=lambda f: f.name)
    stated = _read([f for f in files if f.kind is Kind.ENVIRONMENT])
    if stated.identity.components:
        return stated
    said = _read([f for f in files if _PROFILER_INFO.fullmatch(f.path.name)])
    return dataclasses.replace(stated, identity=said.identity, version_files=said.version_files)


def _read(files: Iterable[Found]) -> Environment:
    return read_environment((f.name, f.path.read_bytes().decode("utf-8", "replace")) for f in files)


def _make(files: Sequence[Found], build: str | None, workspace: Path) -> IngestedCapture:
    environment = _environment(files)
    draft = _fresh(workspace / ".draft")
    draft.mkdir()
    for file in files:
        target = draft / _place(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.path, target)
    label = build or environment.identity.label
    kinds = tuple(sorted({str(f.kind) for f in files}))
    _write(draft / "environment.json", _environment_document(environment, label))
    _write(draft / "capture.json", _capture_document(environment, label, files))
    manifest = write_manifest(draft)
    folder = workspace / manifest.capture_id
    if (folder / NAME).is_file() and read_manifest(folder).content == manifest.content:
        shutil.rmtree(draft)
    else:
        draft.rename(_fresh(folder))
    return IngestedCapture(folder, manifest.capture_id, label, kinds, len(files), _common_folder(files))


def _common_folder(files: Sequence[Found]) -> str:
    """Deepest folder that holds all files but those that describe the host."""
    placed = [f for f in files if f.kind is not Kind.ENVIRONMENT] or files
    folders = [PurePosixPath(f.root or PurePosixPath(f.name).parent) for f in placed]
    common = os.path.commonpath(folders) if folders else ""
    return "" if common == "." else common


def _place(file: Found) -> PurePosixPath:
    """Place in the capture: a profiler run under its folder's own name, the rest as it lay."""
    if file.kind is Kind.PROFILER and file.root:
        outside = PurePosixPath(file.root).parent
        path = PurePosixPath(file.name)
        inside = path.relative_to(outside) if path.is_relative_to(outside) else path
        return PurePosixPath(file.kind) / inside
    return PurePosixPath(str(file.kind)) / file.name


def _capture_document(environment: Environment, label: str, files: Sequence[Found]) -> dict[str, Any]:
    roots = sorted({PurePosixPath(f.root).name for f in files if f.root})
    return {
        "schema_version": CAPTURE_SCHEMA_VERSION,
        "status": INGESTED,
        "experiment": INGESTED,
        "arm": INGESTED,
        "role": INGESTED,
        "kind": INGESTED,
        "agent": INGESTED,
        "evidence": "measured",
        "build": {"label": label, "build_id": environment.identity.build_id},
        "profiler_runs": roots,
        "file_count": len(files),
    }


def _environment_document(environment: Environment, label: str) -> dict[str, Any]:
    state = environment.device_state
    names = sorted({chip.name for chip in state.chips}) if state else []
    return {
        "schema_version": CAPTURE_SCHEMA_VERSION,
        "build": {
            "label": label,
            "build_id": environment.identity.build_id,
            "components": environment.identity.components,
            "conflicts": list(environment.identity.conflicts),
        },
        "device": {
            "host": UNKNOWN,
            "device": UNKNOWN,
            "device_class": names[0] if len(names) == 1 else UNKNOWN,
        },
        "device_state": dataclasses.asdict(state) if state else None,
        "version_files": [{"path": f.path, "kind": f.kind} for f in environment.version_files],
    }


def _write(path: Path, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _fresh(folder: Path) -> Path:
    """``folder`` without what a killed run left there."""
    if folder.exists():
        shutil.rmtree(folder)
    return folder
