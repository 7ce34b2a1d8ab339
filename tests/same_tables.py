"""Derive every table of archived captures by two versions of the code and compare them value by value.

    python tests/same_tables.py BEFORE AFTER RUN_FOLDER…

BEFORE and AFTER are checkouts, or revisions of this repository; a RUN_FOLDER is one of a spool
(``<home>/spool/<run id>``). Where the folders are of two builds, the first and the last are compared as well.
Prints one line a table and what differs; exits 1 where anything does.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
DERIVE = Path(__file__).with_name("derive_tables.py")


@dataclass(frozen=True)
class Difference:
    """One column, or one whole table (``column`` empty), that is not the same."""

    table: str
    column: str
    why: str


def differences(before: Mapping[str, pa.Table], after: Mapping[str, pa.Table]) -> list[Difference]:
    """What is not equal: tables and columns of one side only, other row counts, values by position.

    Null equals null and NaN equals NaN; the order of rows counts.
    """
    found = []
    for table in sorted({*before, *after}):
        if table not in before or table not in after:
            found.append(Difference(table, "", f"only {'before' if table in before else 'after'}"))
            continue
        found += _of_table(table, before[table], after[table])
    return found


def _of_table(table: str, before: pa.Table, after: pa.Table) -> list[Difference]:
    if before.num_rows != after.num_rows:
        return [Difference(table, "", f"{before.num_rows} rows before, {after.num_rows} after")]
    names = dict.fromkeys([*before.column_names, *after.column_names])
    found = []
    for name in names:
        if name not in before.column_names or name not in after.column_names:
            only = "before" if name in before.column_names else "after"
            found.append(Difference(table, name, f"column only {only}"))
        elif why := _of_column(name, before, after):
            found.append(Difference(table, name, why))
    return found


def _of_column(name: str, before: pa.Table, after: pa.Table) -> str:
    """Empty where both are equal: how many values differ, and the first of them."""
    if before[name].equals(after[name]):
        return ""
    connection = duckdb.connect()
    connection.register("b", pa.table({"value": before[name]}))
    connection.register("a", pa.table({"value": after[name]}))
    rows = connection.sql(
        "SELECT b.value, a.value FROM b POSITIONAL JOIN a WHERE b.value IS DISTINCT FROM a.value"
    ).fetchall()
    return f"{len(rows)} of {before.num_rows} values, the first: {rows[0][0]} -> {rows[0][1]}" if rows else ""


def derived(code: Path, folders: Sequence[Path], out: Path) -> dict[str, pa.Table]:
    """Tables that the checkout ``code`` derives from the run folders, in a process of its own."""
    subprocess.run(
        [sys.executable, "-P", str(DERIVE), str(code), str(out), *map(str, folders)], check=True, cwd=out
    )
    return {path.stem: pq.read_table(path) for path in sorted(out.glob("*.parquet"))}


def checkout(named: str, into: Path) -> Path:
    """The folder ``named``, or the files of the revision ``named`` below ``into``."""
    if Path(named).is_dir():
        return Path(named).resolve()
    packed = subprocess.run(["git", "archive", named], cwd=ROOT, check=True, capture_output=True).stdout
    into.mkdir()
    subprocess.run(["tar", "-x", "-C", str(into)], input=packed, check=True)
    return into


def main(arguments: Sequence[str]) -> int:
    """Compare, print, and return the exit code."""
    folders = [Path(text).resolve() for text in arguments[2:]]
    with tempfile.TemporaryDirectory() as work:
        tables = []
        for place, named in zip(("before", "after"), arguments[:2], strict=True):
            (out := Path(work) / f"tables-{place}").mkdir()
            tables.append(derived(checkout(named, Path(work) / place), folders, out))
    found = differences(*tables)
    values = 0
    for name, table in tables[1].items():
        odd = [one for one in found if one.table == name]
        values += table.num_rows * table.num_columns
        print(f"{name}: {table.num_rows} rows, {table.num_columns} columns: {len(odd)} differences")
        for one in odd:
            print(f"    {one.column or 'table'}: {one.why}")
    for one in found:
        if one.table not in tables[1]:
            print(f"{one.table}: {one.why}")
    print(f"{len(tables[1])} tables, {values} values, {len(found)} differences")
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
