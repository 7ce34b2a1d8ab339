"""The half of ``same_tables.py`` that runs with the code under comparison: run folders in, Parquet files out.

It imports the modules by the names that each version of the code gives them.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def module(code: Path, present: str, former: str) -> Any:
    """A module of the checkout ``code``: ``tilewatch.<present>``, or ``former`` before there was that name.

    Never one that is installed: another version of the code would answer for this one.
    """
    found = import_module(f"tilewatch.{present}" if (code / ".package").is_dir() else former)
    if not Path(str(found.__file__)).resolve().is_relative_to(code.resolve()):
        raise SystemExit(f"{found.__name__} came from {found.__file__} and not from {code}")
    return found


def main(code: Path, out: Path, folders: list[Path]) -> None:
    """Derive the tables of every folder, join them, and compare the first with the last."""
    sys.path[:0] = [str(code / ".package") if (code / ".package").is_dir() else str(code)]
    derive = module(code, "tasks.derive.operators", "tasks.derive").derive
    documents = module(code, "tasks.plan.run_document", "tasks.plan.run_document")
    spool = module(code, "infra.spool", "infra.spool")
    runs = []
    for path in folders:
        document = documents.read_run_document((path / "run.json").read_bytes(), path / "run.json")
        folder = spool.RunFolder(path, document)
        captures = {
            letter: [(one, f"raw/{letter}/{one.name}") for one in folder.captures(letter)]
            for letter in document.experiments
        }
        runs.append(derive(document, captures))
    tables = {name: pa.concat_tables([run[name] for run in runs]) for name in runs[0]}
    if len(folders) > 1 and tables["points"].num_rows:
        tables["comparisons"] = compared(code, runs[0], runs[-1])
    for name, table in tables.items():
        pq.write_table(table, out / f"{name}.parquet")


def compared(code: Path, base: dict[str, pa.Table], candidate: dict[str, pa.Table]) -> pa.Table:
    """The last run against the first one, without a history of other leases."""
    compare = module(code, "tasks.analyse.comparison.compare", "tasks.analyse.compare")
    tables = module(code, "tasks.analyse.tables", "tasks.analyse.tables").RunTables
    names = ("runs", "captures", "points", "samples", "alignments")
    sides = [tables(**{name: run[name] for name in names}) for run in (base, candidate)]
    labels = [side.distinct("build")[0] for side in sides]
    rows: pa.Table = compare.compare_builds(*sides, baseline=labels[0], candidate_name=labels[1])
    return rows


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), [Path(text) for text in sys.argv[3:]])
