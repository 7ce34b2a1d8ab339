"""What a site is watched by: captures, points, quarantined rows, voids, and waits for a device lock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.infra.archive import Archive
from tilewatch.infra.settings import Settings

LEASES = "leases.jsonl"
NS_PER_S = 1_000_000_000


def note_lease(folder: Path, lease_id: str, waited_ns: int) -> None:
    """Remember in the run's spool folder how long a lease was waited for; 0 where the device was free."""
    folder.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"lease_id": lease_id, "waited_ns": waited_ns}) + "\n"
    with (folder / LEASES).open("a", encoding="utf-8") as stream:
        stream.write(line)


def counts_of(
    tables: Mapping[str, pa.Table], spool: Path, run_id: str | None = None
) -> dict[str, int | float]:
    """The counts of ``tables`` (runs, captures, points), and the waits in ``spool``, of one run or of all.

    A void is an experiment of a run whose A/A control failed. Waits are those of this host.
    """
    runs = tables["runs"]
    waited = [
        json.loads(line)["waited_ns"]
        for path in spool.rglob(LEASES)
        if run_id is None or path.parent.name == run_id
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return {
        "captures": tables["captures"].num_rows,
        "points": tables["points"].num_rows,
        "quarantined rows": pc.sum(runs["quarantined_rows"]).as_py() or 0,
        "voids": pc.sum(pc.equal(runs["status"], "void")).as_py() or 0,
        "waits for the lock": sum(ns > 0 for ns in waited),
        "seconds waited": round(sum(waited) / NS_PER_S, 1),
    }


def counts_of_site(settings: Settings, archive: Archive) -> dict[str, int | float]:
    """The counts of everything archived."""
    columns = {
        "runs": ["quarantined_rows", "status"], "captures": ["capture_id"], "points": ["point_id"]
    }  # fmt: skip
    tables = {name: archive.tables.scan(name, columns=wanted) for name, wanted in columns.items()}
    return counts_of(tables, settings.spool_folder)
