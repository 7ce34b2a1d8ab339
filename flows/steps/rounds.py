"""Compare two sides by results of a serving client: files where they lie, or builds that were ingested."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tilewatch.data_contracts import schema

if TYPE_CHECKING:
    from tilewatch.infra.archive import Archive
    from tilewatch.tasks.analyse.comparison.serving_rounds import RoundsCompared


def rounds_at(path: Path) -> pa.Table:
    """Contract ``serving_results`` of all results of serving clients at ``path``; an empty table for none."""
    from tilewatch.tasks.ingest.recognise import Kind, recognise
    from tilewatch.tasks.read.captures import serving_bench
    from tilewatch.tasks.read.origin import Origin
    from tilewatch.tasks.read.tabular.plain_copy import plain_copy

    origin = Origin("", "", "", "", "ingested", "ingested", "measured")
    tables = [schema("serving_results").empty_table()]
    for found in recognise(path):
        if found.kind is Kind.SERVING:
            with plain_copy(found.path) as plain:
                tables.append(serving_bench.read(plain.path, origin, found.name).table)
    return pa.concat_tables(tables)


def rounds_of(archive: Archive, build: str) -> pa.Table:
    """Contract ``serving_results`` of the ingested captures of ``build``."""
    return archive.tables.scan("serving_results", [("build", "==", build), ("experiment", "==", "ingested")])


def compare_sides(base: pa.Table, candidate: pa.Table, names: tuple[str, str]) -> RoundsCompared | None:
    """Verdicts by rounds; None where a side has no result of a client. Raises RoundsDifferError."""
    from tilewatch.tasks.analyse.comparison.serving_rounds import compare_rounds

    if not base.num_rows or not candidate.num_rows:
        return None
    return compare_rounds(base, candidate, names)
