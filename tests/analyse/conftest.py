"""Builds contract tables from arrays of process values, vectorised, for every analysis test."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from tilewatch.data_contracts import from_rows, schema
from tilewatch.tasks.analyse.tables import RunTables

Fill = Mapping[str, Any]


def table(name: str, rows: int, columns: Fill) -> pa.Table:
    """A contract table: given columns (arrays or one value for all), zero values for other required ones."""
    spec = schema(name)
    unknown = set(columns) - set(spec.names)
    assert not unknown, unknown
    arrays = []
    for field in spec:
        if field.name in columns:
            value = columns[field.name]
            if isinstance(value, np.ndarray | pa.Array | list):
                arrays.append(pa.array(value).cast(field.type))
            else:
                arrays.append(pa.repeat(pa.scalar(value, field.type), rows))
        elif field.nullable:
            arrays.append(pa.nulls(rows, field.type))
        else:
            arrays.append(pa.repeat(_zero(field.type), rows))
    return pa.Table.from_arrays(arrays, schema=spec)


def _zero(kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_string(kind):
        return pa.scalar("x")
    if pa.types.is_boolean(kind):
        return pa.scalar(False)
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        return pa.scalar([], kind)
    return pa.scalar(0, kind)


def hashed(*parts: object) -> str:
    """32 hex digits of the parts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def run_tables(
    values_ns: npt.NDArray[np.float64],
    *,
    run_id: str = "run1",
    build: str = "cann-9.0",
    experiment: str = "quant_matmul",
    arm: str = "standalone",
    lease: str = "lease1",
    role: str = "main",
    axis_values: Sequence[int] | None = None,
    components: Mapping[str, str] | None = None,
    samples: int = 1,
    point: Fill | None = None,
    capture: Fill | None = None,
    environment: Mapping[str, str] | None = None,
) -> RunTables:
    """One run of one arm from ``values_ns`` [points, processes]; NaN leaves a process out at that point."""
    points, processes = values_ns.shape
    axis = list(range(1, points + 1)) if axis_values is None else list(axis_values)
    ids = np.array([hashed("point", experiment, m, *(point or {}).get("linear", ""))[:16] for m in axis])
    build_id = hashed("build", build)[:16]
    captures = [hashed(run_id, experiment, arm, role, p) for p in range(processes)]
    common: dict[str, Any] = {"run_id": run_id, "build": build, "build_id": build_id, "evidence": "measured"}
    method = str((capture or {}).get("method_hash", "method1"))
    parts = components if components is not None else {"cann": build}
    runs = {
        "experiment": experiment, "build_components": list(parts.items()), "agent": "npu", "device": "910C",
        "plan_hash": "plan1", "method_hash": method, "lease_id": lease, "status": "complete", "ended_ns": 1,
        "control_status": "ok", "device_class": "910C",
    }  # fmt: skip
    held: dict[str, Any] = {
        "capture_id": captures, "experiment": experiment, "arm": arm, "role": role, "kind": "timing",
        "process_index": np.arange(processes), "agent": "npu", "status": "complete", "method_hash": method,
        "lease_id": lease, "device": "910C", "device_class": "910C", "plan_hash": "plan1", "file_count": 1,
        "environment": list((environment or {}).items()),
    }  # fmt: skip
    held["environment"] = pa.array(
        [list((environment or {}).items())] * processes, schema("captures").field("environment").type
    )
    shape: dict[str, Any] = {
        "experiment": experiment, "arm": arm, "point_id": ids, "axis": "m", "axis_value": axis, "m": axis,
        "m_executed": axis, "k": 4096, "n": 1024, "operator": "quant_matmul", "linear": "wq_a",
        "launch_mode": "eager", "dtype_x": "int8", "dtype_w": "int8", "dtype_out": "bfloat16",
        "weight_format_requested": "FRACTAL_NZ", "weight_format": "FRACTAL_NZ", "status": "present",
        "planned_processes": processes, "present_processes": processes, **(point or {}),
    }  # fmt: skip
    point_index, process, sample = (a.ravel() for a in np.indices((points, processes, samples)))
    flat = values_ns[point_index, process]
    taken = ~np.isnan(flat)
    rows = {
        "capture_id": np.array(captures)[process[taken]], "experiment": experiment, "arm": arm,
        "point_id": ids[point_index[taken]], "process_index": process[taken], "role": role,
        "method_hash": method, "sample": sample[taken], "calls": 1,
        "duration_ns": np.rint(flat[taken]).astype(np.int64),
    }  # fmt: skip
    return RunTables(
        runs=table(
            "runs",
            1,
            {
                **common,
                **runs,
                "build_components": pa.array(
                    [list(parts.items())], schema("runs").field("build_components").type
                ),
            },
        ),
        captures=table("captures", processes, {**common, **held, **(capture or {})}),
        points=table("points", points, {**common, **shape}),
        samples=table("samples", int(taken.sum()), {**common, **rows}),
        alignments=from_rows("alignments", []),
    )


def aligned(tables: RunTables, columns: Fill) -> RunTables:
    """``tables`` with one alignment a point; ``columns`` gives its tiling fields (arrays in point order)."""
    names = ("run_id", "build", "build_id", "experiment", "arm", "point_id", "evidence")
    held = {name: tables.points[name].combine_chunks() for name in names}
    fill = {"status": "aligned", "calls": 5, "kernel_count": 5, "expected_kernel_count": 5, **columns}
    alignments = table("alignments", tables.points.num_rows, {**held, **fill})
    return RunTables(tables.runs, tables.captures, tables.points, tables.samples, alignments)


def shuffled(tables: RunTables, seed: int) -> RunTables:
    """The same tables with their rows in another order."""
    draw = np.random.default_rng(seed)
    return RunTables(
        *(
            getattr(tables, n).take(draw.permutation(getattr(tables, n).num_rows))
            for n in ("runs", "captures", "points", "samples", "alignments")
        )
    )


@pytest.fixture
def make_run() -> Callable[..., RunTables]:
    return run_tables


@pytest.fixture
def make_table() -> Callable[..., pa.Table]:
    return table


@pytest.fixture
def align() -> Callable[[RunTables, Fill], RunTables]:
    return aligned


@pytest.fixture
def shuffle() -> Callable[[RunTables, int], RunTables]:
    return shuffled


@pytest.fixture(scope="session")
def detectors() -> Path:
    """Folder of detector oracles; tests that need it are skipped where there is none."""
    root = os.environ.get("TILEWATCH_SHARED")
    if not root:
        pytest.skip("TILEWATCH_SHARED does not name the folder with the shared vectors")
    return Path(root) / "vectors" / "detectors"
