"""Files whose kernels are stored already: the same bytes under another capture are not stored twice.

Kernels with start times make a file's bytes its own: two runs never write the same ones. Without start times
(``msprof op``) equal bytes may be two measurements, so such files are never taken for known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.collect.manifest import Manifest
from tilewatch.tasks.read.captures.ingested_capture import FileAccount, IngestedTables

DOCUMENTS = ("capture.json", "environment.json")


@dataclass(frozen=True)
class Kept:
    """What of one capture is to be stored. ``owner`` is the capture that holds all of its files already."""

    found: IngestedTables
    owner: str | None = None


class KnownFiles:
    """Which capture of one build holds which bytes. ``manifest_of`` gives the manifest of a capture."""

    def __init__(
        self, manifest_of: Callable[[str], Manifest], stored: Iterable[Mapping[str, object]]
    ) -> None:
        """``stored`` are rows of ``captures`` with ``capture_id`` and ``timed_files``."""
        self._manifest_of = manifest_of
        self._owners: dict[str, str] = {}
        for row in stored:
            files = row["timed_files"]
            for digest in files if isinstance(files, list) else ():
                self._owners.setdefault(str(digest), str(row["capture_id"]))

    def keep(self, capture_id: str, manifest: Manifest, found: IngestedTables) -> Kept:
        """``found`` without the rows of files that another capture holds, which the account then names.

        ``timed_files`` of its row in ``captures`` says what is left, and this capture owns that from now on.
        """
        digests = {f.path: f.sha256 for f in manifest.files if f.path not in DOCUMENTS}
        timed = {name: digests[name] for name in _timed(found.tables) if name in digests}
        owners = sorted({self._owners.get(digest, capture_id) for digest in timed.values()} - {capture_id})
        held: dict[str, str] = {}
        for owner in owners:
            theirs = {f.sha256 for f in self._manifest_of(owner).files}
            held |= {name: owner for name, digest in digests.items() if digest in theirs}
        own = sorted(digest for name, digest in timed.items() if name not in held)
        for digest in own:
            self._owners.setdefault(digest, capture_id)
        tables = (
            {name: _without(table, held) for name, table in found.tables.items()} if held else found.tables
        )
        tables = tables | {"captures": _with_timed_files(tables["captures"], own)}
        account = tuple(_known_already(a, held[a.file]) if a.file in held else a for a in found.account)
        whole = len(owners) == 1 and held.keys() == digests.keys()
        return Kept(replace(found, tables=tables, account=account), owners[0] if whole else None)


def _known_already(account: FileAccount, owner: str) -> FileAccount:
    return FileAccount(account.file, {}, 0, {}, f"these bytes are in capture {owner} already")


def _timed(tables: Mapping[str, pa.Table]) -> list[str]:
    kernels = tables.get("kernels")
    if kernels is None:
        return []
    names = kernels["source_file"].filter(pc.is_valid(kernels["start_ns"]))
    return sorted(pc.unique(names).to_pylist())


def _without(table: pa.Table, held: Mapping[str, str]) -> pa.Table:
    if "source_file" not in table.column_names:
        return table
    theirs = pc.is_in(table["source_file"], value_set=pa.array(list(held), pa.string()))
    return table.filter(pc.invert(theirs))


def _with_timed_files(captures: pa.Table, digests: list[str]) -> pa.Table:
    (row,) = captures.to_pylist()
    return from_rows("captures", [{**row, "timed_files": digests}])
