"""Retention: which runs may go, and letting go of their raw captures, rows or reports.

Never goes what an approved baseline or a published comparison stands on, nor what is younger than asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tilewatch.data_contracts import contract, table_names
from tilewatch.flows.steps.pages import REPORTS
from tilewatch.flows.steps.published import needed
from tilewatch.infra.archive import Archive
from tilewatch.infra.raw_zone import document_key, run_folder_key

Kind = Literal["raw", "tables", "reports"]
DAY_S = 86_400


@dataclass(frozen=True)
class Verdict:
    """One run: whether it may go, and otherwise why it stays. Sizes are those of the raw captures."""

    run_id: str
    build: str
    age_days: float
    stays_because: str | None
    raw_prefixes: tuple[str, ...]
    raw_bytes: int


def judged(archive: Archive, older_than_days: float, now_s: float) -> list[Verdict]:
    """Every archived run, oldest first, with the reason for which it stays; nothing is deleted."""
    kept = needed(archive)
    prefixes: dict[str, list[str]] = {}
    for row in archive.tables.scan("captures", columns=["run_id", "capture_id", "raw_prefix"]).to_pylist():
        prefixes.setdefault(row["run_id"], []).append(row["raw_prefix"])
        if row["capture_id"] in kept:
            kept.setdefault(row["run_id"], kept[row["capture_id"]])
    columns = ["run_id", "build", "started_ns"]
    runs = {row["run_id"]: row for row in archive.tables.scan("runs", columns=columns).to_pylist()}
    found = []
    for run_id, run in sorted(runs.items(), key=lambda item: (item[1]["started_ns"], item[0])):
        age_days = (now_s - run["started_ns"] / 1e9) / DAY_S
        young = f"younger than {older_than_days:g} days" if age_days < older_than_days else None
        raw = tuple(sorted(prefixes.get(run_id, ())))
        size = sum(item.size_bytes for prefix in raw for item in archive.objects.list(f"{prefix}/"))
        found.append(Verdict(run_id, run["build"], age_days, kept.get(run_id) or young, raw, size))
    return found


def let_go(archive: Archive, verdict: Verdict, kinds: Iterable[Kind]) -> None:
    """Delete what is of ``kinds`` of a run that may go; again after a death it deletes the rest.

    Raises ValueError for a run that stays. Rows go last: while they are there the run is found again.
    """
    if verdict.stays_because is not None:
        raise ValueError(f"run {verdict.run_id} stays: {verdict.stays_because}")
    wanted = set(kinds)
    if "reports" in wanted:
        archive.objects.delete_prefix(f"{REPORTS}/{verdict.run_id}/")
    if "raw" in wanted:
        for prefix in verdict.raw_prefixes:
            archive.objects.delete_prefix(f"{prefix}/")
        archive.objects.delete_prefix(document_key(verdict.run_id))
        archive.objects.delete_prefix(run_folder_key(verdict.run_id))
    if "tables" in wanted:
        for table in sorted(table_names(), key=lambda name: (name == "runs", name == "captures", name)):
            if any(column.name == "run_id" for column in contract(table).columns):
                archive.tables.delete(table, run_id=verdict.run_id)
