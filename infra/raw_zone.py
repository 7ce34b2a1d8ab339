"""Captures of a run into the raw zone, its document first, so that every table can be rebuilt from there."""

from __future__ import annotations

import json
from pathlib import Path

from tilewatch.infra.archive import Archive
from tilewatch.infra.logs import event
from tilewatch.infra.progress import current
from tilewatch.infra.spool import RunFolder
from tilewatch.tasks.collect.archive import RAW, CaptureRef, archive_capture, key_part, list_captures
from tilewatch.tasks.plan.run_document import RunDocument, RunDocumentError, read_run_document

RUNS = f"{RAW}/runs"


def archive_run(archive: Archive, folder: RunFolder) -> dict[str, list[tuple[Path, CaptureRef]]]:
    """Store the run's document and every complete capture; by experiment, folders with their references.

    Idempotent: what is stored already is not sent again.
    """
    archive.objects.put_new(document_key(folder.document.run_id), folder.document.to_json())
    captures = {letter: folder.captures(letter) for letter in folder.document.experiments}
    current().stage("archive", sum(len(c) for c in captures.values()))
    stored: dict[str, list[tuple[Path, CaptureRef]]] = {}
    for letter, folders in captures.items():
        stored[letter] = []
        for path in folders:
            ref = archive_capture(path, archive.objects)
            stored[letter].append((path, ref))
            event("archived", experiment=letter, capture_id=ref.capture_id, created=ref.created)
            current().advance(f"{letter} {path.name}")
    return stored


def document_key(run_id: str) -> str:
    """Key of a run's document in the object store."""
    return f"{RUNS}/{run_id}.json"


def run_folder_key(run_id: str) -> str:
    """Prefix of what the devices of one run leave beside its document, with the closing slash."""
    return f"{RUNS}/{run_id}/"


def claims(archive: Archive, run_id: str) -> dict[tuple[str, int], tuple[str, ...]]:
    """Raw prefixes of every finished block of a run over several devices, by experiment and block.

    Empty for a run of one device: nobody had to claim anything.
    """
    keys = [item.key for item in archive.objects.list(run_folder_key(run_id))]
    bodies = [json.loads(archive.objects.get(key)) for key in keys]
    return {(body["experiment"], body["block"]): tuple(body["prefixes"]) for body in bodies}


def captures_of(archive: Archive, document: RunDocument, experiment: str) -> list[str]:
    """Prefixes of the run's complete captures of one experiment, found in the raw zone itself.

    Of a run over several devices those of the claimed blocks.
    """
    if claimed := claims(archive, document.run_id):
        return sorted(p for (letter, _), found in claimed.items() if letter == experiment for p in found)
    of_build = f"{RAW}/{key_part(experiment)}/{key_part(document.build)}"
    return [
        prefix
        for prefix in list_captures(archive.objects, of_build)
        if json.loads(archive.objects.get(f"{prefix}/capture.json"))["run_id"] == document.run_id
    ]


def archived_document(archive: Archive, run_id: str) -> RunDocument:
    """The document of an archived run. Raises ObjectMissingError where there is none.

    Raises RunDocumentError for what is not the document of this run: a store may hold anything.
    """
    key = document_key(run_id)
    found = read_run_document(archive.objects.get(key), key)
    if found.run_id != run_id:
        raise RunDocumentError(f"{key}: is the document of another run, {found.run_id!r}")
    return found
