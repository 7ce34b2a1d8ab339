"""A plan of any points for this machine's own build, and the program's modules by their bare names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.measure.method import default_method, method_hash
from tilewatch.tasks.measure.run import PROGRAM, Description, describe

Point = dict[str, Any]
Plan = dict[str, Any]

pytest.importorskip("torch", reason="the cpu agent needs torch: install the extra cpu")


@pytest.fixture(scope="session")
def program() -> Path:
    """Folder of the measuring program, importable from here on as it is for itself."""
    folder = PROGRAM.parent
    sys.path.append(str(folder))
    return folder


@pytest.fixture(scope="session")
def kernels(program: Path) -> Any:
    """The reference kernels, registered in this process."""
    import cpu_kernels  # type: ignore[import-not-found]

    cpu_kernels.register()
    return cpu_kernels


@pytest.fixture(scope="session")
def described() -> Description:
    """What this interpreter would measure with."""
    return describe(sys.executable, "cpu")


def a_point(number: int, **changes: Any) -> Point:
    """A small INT8 NZ matmul, changed as asked."""
    point: Point = {
        "point_id": f"{number:016x}",
        "operation": "quant_matmul",
        "axis": "m",
        "axis_value": 8,
        "linear": "wq_a",
        "m": 8,
        "m_executed": 8,
        "k": 256,
        "n": 128,
        "dtype_x": "int8",
        "dtype_w": "int8",
        "dtype_out": "bfloat16",
        "weight_format_requested": "FRACTAL_NZ",
        "launch_mode": "eager",
        "group_list": None,
        "group_list_type": None,
        "allocation_regime": None,
        "allocated_rows": None,
        "local_experts": None,
        "group_shape": None,
        "m_e": None,
        "tuning_config": None,
        "transposed_w": False,
    }
    return point | changes


@pytest.fixture
def point() -> Callable[..., Point]:
    """Maker of points."""
    return a_point


@pytest.fixture
def plan(described: Description, tmp_path: Path) -> Callable[..., Plan]:
    """Maker of process plans that this machine can execute; small amounts unless asked otherwise."""
    method = default_method("cpu") | {"cache": "warm"}

    def make(points: list[Point], amount: dict[str, int] | None = None, **changes: Any) -> Plan:
        made: Plan = {
            "schema_version": 1,
            "run_id": "01JTEST0000000000000000000",
            "experiment": "B",
            "experiment_name": "quant_matmul",
            "plan_hash": "0123456789abcdef",
            "arm": "nz",
            "role": "main",
            "kind": "timing",
            "process_index": 0,
            "block": 0,
            "seed": 7,
            "agent": "cpu",
            "lease_id": "lease",
            "build": {"label": "test", "build_id": described.build_id},
            "method": method,
            "method_hash": method_hash(method),
            "amount": {
                "samples": 4,
                "min_sample_ns": 50_000,
                "max_point_ns": 200_000_000,
                "warm_up_max_rounds": 10,
                "profiled_calls": 3,
                "discard_budget": 2,
            }
            | (amount or {}),
            "lock_path": str(tmp_path / "device.lock"),
            "env": {},
            "points": points,
        }
        return made | changes

    return make


@pytest.fixture
def endless(point: Callable[..., Point], plan: Callable[..., Plan]) -> Plan:
    """A plan whose first point takes no time and whose second takes minutes, for tests that end it early."""
    amount = {"samples": 10_000_000, "max_point_ns": 600_000_000_000}
    return plan([point(1, operation="tuple_input"), point(2)], amount)
