"""Database against CSV on real kernels: no sample has both exports of one run, so the database is made here.

Its tables are those of a real database, by their own CREATE statements; its rows are the text of a real
kernel_details.csv, turned into nanoseconds by ``decimal`` and not by a reader.
"""

from __future__ import annotations

import csv
import shutil
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.profiler_folder import CHECKS, read_profiler

CSV = (
    "samples/profiler/msinsight-st-level2-cann83rc1/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT/"
    "kernel_details.csv"
)
DATABASE = (
    "samples/profiler/msinsight-pytorch-db/level2/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/"
    "ascend_pytorch_profiler_0.db"
)
RULE = "database equals CSV to the nanosecond"
TEXTS = (
    "Name", "Accelerator Core", "Type", "Input Formats", "Input Data Types", "Input Shapes", "Output Formats",
    "Output Data Types", "Output Shapes",
)  # fmt: skip


@pytest.fixture
def run(shared: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "rank_0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True)
    shutil.copyfile(shared / CSV, folder / "kernel_details.csv")
    with (shared / CSV).open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    make_database(shared / DATABASE, folder / "ascend_pytorch_profiler_0.db", rows)
    return folder.parent


def make_database(real: Path, target: Path, rows: list[dict[str, str]]) -> None:
    with sqlite3.connect(f"file:{real}?immutable=1", uri=True) as source:
        statements = [sql for (sql,) in source.execute("SELECT sql FROM sqlite_master WHERE type = 'table'")]
        version = source.execute("SELECT * FROM META_DATA WHERE name = 'SCHEMA_VERSION'").fetchall()
    strings: dict[str, int] = {}
    with sqlite3.connect(target) as db:
        for statement in statements:
            db.execute(statement)
        db.executemany("INSERT INTO META_DATA VALUES (?, ?)", version)
        for number, row in enumerate(rows):
            start = ns(row["Start Time(us)"])
            end = start + ns(row["Duration(us)"])
            name, core, kind, *lists = (strings.setdefault(row[t], len(strings)) for t in TEXTS)
            if row["Accelerator Core"] == "COMMUNICATION":
                insert(
                    db, "COMMUNICATION_OP", opName=name, startNs=start, endNs=end, opId=number, opType=kind
                )
                continue
            ids = {"deviceId": row["Device_id"], "streamId": row["Stream ID"], "taskId": row["Task ID"]}
            numbers = {column: int(value) for column, value in ids.items()}
            insert(db, "TASK", startNs=start, endNs=end, globalTaskId=number, connectionId=number, **numbers)
            blocks = {"blockDim": int(row["Block Dim"]), "mixBlockDim": int(row["Mix Block Dim"])}
            keys = ("inputFormats", "inputDataTypes", "inputShapes", "outputFormats", "outputDataTypes",
                    "outputShapes")  # fmt: skip
            said = dict(zip(keys, lists, strict=True)) | blocks
            insert(
                db, "COMPUTE_TASK_INFO", name=name, globalTaskId=number, taskType=core, opType=kind, **said
            )
        db.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", [(i, text) for text, i in strings.items()])


def insert(db: sqlite3.Connection, table: str, **values: int) -> None:
    marks = ", ".join("?" * len(values))
    db.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))


def ns(text: str) -> int:
    nanoseconds = Decimal(text.strip()) * 1000
    assert nanoseconds == int(nanoseconds)
    return int(nanoseconds)


def check(run: Path, origin: Origin) -> dict[str, Any]:
    checks = read_profiler(run, origin)[CHECKS].table.to_pylist()
    found: dict[str, Any] = next(row for row in checks if row["rule"] == RULE)
    return found


def test_all_real_kernels_are_equal_to_the_nanosecond(run: Path, origin: Origin) -> None:
    found = check(run, origin)
    assert found["success"]
    assert (found["row_count"], found["failed_count"]) == (2463, 0)


def test_one_nanosecond_in_one_real_kernel_is_found_and_named(run: Path, origin: Origin) -> None:
    database = run / "ASCEND_PROFILER_OUTPUT" / "ascend_pytorch_profiler_0.db"
    with sqlite3.connect(database) as db:
        db.execute("UPDATE TASK SET endNs = endNs + 1 WHERE globalTaskId = 0")
    found = check(run, origin)
    assert not found["success"]
    assert found["failed_count"] == 2
    assert found["detail"].count("1 times in the database, 0 times in the files") == 1
    assert found["detail"].count("0 times in the database, 1 times in the files") == 1
    assert found["detail"].startswith("aclnn")
