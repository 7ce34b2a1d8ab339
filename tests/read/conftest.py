"""Fixtures that the reader tests share."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.read.origin import Origin


@pytest.fixture(scope="session")
def origin() -> Origin:
    """The identity of a capture that nothing else knows of."""
    return Origin(
        capture_id="c" * 32,
        run_id="01JZZZZZZZZZZZZZZZZZZZZZZZ",
        build="cann-8.5.0",
        build_id="b" * 16,
        experiment="quant_matmul",
        arm="standalone",
        evidence="measured",
        process_index=3,
    )


_TEXTS = ("name", "task_type", "op_type", "input_formats", "input_dtypes", "input_shapes", "output_shapes")


@pytest.fixture(scope="session")
def make_database() -> Callable[..., None]:
    """Writes a kernel database from rows of contract ``kernels``."""
    return _make_database


def _make_database(
    path: Path, rows: list[dict[str, Any]], block: str = "blockNum", mix: str = "mixBlockNum"
) -> None:
    """A database of schema 1.2.0 with the given kernels; communication goes where the profiler puts it."""
    strings: dict[str, int] = {}

    def text(value: Any) -> int:
        if isinstance(value, list) and value and isinstance(value[0], list):
            value = '"' + ";".join(",".join(map(str, shape)) for shape in value) + '"'
        elif isinstance(value, list):
            value = ";".join(value)
        return strings.setdefault("N/A" if value is None else str(value), len(strings))

    with sqlite3.connect(path) as db:
        db.executescript(f"""
            CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER,
                globalTaskId INTEGER, globalPid INTEGER, taskType INTEGER, contextId INTEGER,
                streamId INTEGER, taskId INTEGER, modelId INTEGER);
            CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER PRIMARY KEY, {block} INTEGER,
                {mix} INTEGER, taskType INTEGER, opType INTEGER, inputFormats INTEGER, inputDataTypes INTEGER,
                inputShapes INTEGER, outputFormats INTEGER, outputDataTypes INTEGER, outputShapes INTEGER,
                attrInfo INTEGER, opState INTEGER, hf32Eligible INTEGER);
            CREATE TABLE COMMUNICATION_OP (opName INTEGER, startNs INTEGER, endNs INTEGER,
                connectionId INTEGER, opId INTEGER PRIMARY KEY, opType INTEGER);
            CREATE TABLE CANN_API (startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER,
                connectionId INTEGER PRIMARY KEY, name INTEGER);
            CREATE TABLE TASK_PMU_INFO (globalTaskId INTEGER, name INTEGER, value NUMERIC);
            CREATE TABLE META_DATA (name TEXT, value TEXT);
            INSERT INTO META_DATA VALUES ('SCHEMA_VERSION', '1.2.0');
            CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);""")
        for number, row in enumerate(rows):
            end = row["start_ns"] + row["duration_ns"]
            if row["task_type"] == "COMMUNICATION":
                values = (text(row["name"]), row["start_ns"], end, number, number, text(row["op_type"]))
                db.execute("INSERT INTO COMMUNICATION_OP VALUES (?,?,?,?,?,?)", values)
                continue
            context = 4294967295 if row["context_id"] is None else row["context_id"]
            task = (row["start_ns"], end, row["device_id"], number, number, 1, 0, context)
            db.execute(
                "INSERT INTO TASK VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                (*task, row["stream_id"], row["task_id"], 0),
            )
            name, task_type, op_type, formats, dtypes, shapes, outputs = (text(row[key]) for key in _TEXTS)
            blocks = (row["block_dim"], row["mix_block_dim"])
            info = (name, number, *blocks, task_type, op_type, formats, dtypes, shapes)
            more = (text(row["output_formats"]), text(row["output_dtypes"]), outputs, None, None, None)
            db.execute("INSERT INTO COMPUTE_TASK_INFO VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", info + more)
            db.execute("INSERT INTO CANN_API VALUES (?,?,10000,1,?,0)", (row["start_ns"] - 700, end, number))
            if row["block_dim"]:
                db.execute("INSERT INTO TASK_PMU_INFO VALUES (?,?,?)", (number, text("aic_mac_time"), 1500.0))
        db.executemany("INSERT INTO STRING_IDS VALUES (?,?)", [(i, value) for value, i in strings.items()])
