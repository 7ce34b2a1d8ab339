"""Pages on this host and in the object store: written whole, replaced in one step."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tilewatch.infra.archive import Archive
from tilewatch.infra.settings import Settings
from tilewatch.tasks.files import write_whole

REPORTS = "reports"


def publish_pages(settings: Settings, archive: Archive, address: str, pages: dict[str, str]) -> Path:
    """Keep ``pages`` under ``reports/<address>`` in the object store and on this host; returns the folder."""
    for name, page in pages.items():
        archive.objects.replace(f"{REPORTS}/{address}/{name}", page.encode())
    return keep_pages(settings, address, pages)


def keep_pages(settings: Settings, address: str, pages: dict[str, str]) -> Path:
    """Keep ``pages`` under ``reports/<address>`` on this host, to be opened there; returns the folder."""
    folder = settings.home / REPORTS / address
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in pages.items():
        write_whole(folder / name, page)
    return folder


def mark_of(runs: pa.Table) -> str:
    """What stands before the title of a page that shows simulated numbers; empty for others."""
    return "SIMULATED: " if "simulated" in runs["evidence"].to_pylist() else ""
