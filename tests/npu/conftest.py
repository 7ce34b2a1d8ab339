"""The real torch_npu on the software NPU: an interpreter of its own and the driver, built once."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tilewatch.tasks.measure.method import default_method, method_hash
from tilewatch.tasks.measure.run import Description, describe

SOFTWARE_NPU = Path(__file__).parent.parent / "software_npu"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"software_npu_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def npu_python(repository: Path) -> Path:
    """An interpreter that has torch_npu: ``make npu-venv``, or TILEWATCH_NPU_PYTHON."""
    python = Path(os.environ.get("TILEWATCH_NPU_PYTHON") or repository / ".venv-npu/bin/python")
    if not python.is_file():
        pytest.skip(f"needs {python} with torch_npu: run `make npu-venv`")
    return python


@pytest.fixture(scope="session")
def driver(npu_python: Path, repository: Path) -> Path:
    """Folder of the built software NPU."""
    build = _module(SOFTWARE_NPU / "build.py")
    command = "import importlib.util as u; print(u.find_spec('torch_npu').submodule_search_locations[0])"
    found = subprocess.run([npu_python, "-c", command], capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"{npu_python} has no torch_npu: run `make npu-venv`")
    try:
        build.compiler()
    except build.BuildError as error:
        pytest.skip(str(error))
    folder: Path = build.build(Path(found.stdout.strip()), repository / "build/software_npu")
    return folder


@pytest.fixture(scope="session")
def software_npu(driver: Path) -> Mapping[str, str]:
    """The variables that a ``set_env.sh`` would set for the software NPU."""
    variables: dict[str, str] = sys.modules["software_npu_build"].variables(driver)
    return variables


@pytest.fixture(scope="session")
def on_npu(npu_python: Path, software_npu: Mapping[str, str]) -> Run:
    """Runs a script in the interpreter of torch_npu, on the software NPU; more variables by keyword."""

    def run(script: Path, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | dict(software_npu) | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"} | variables
        command = [str(npu_python), str(script), *(str(argument) for argument in arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)

    return run


@pytest.fixture(scope="session")
def on_software_npu(software_npu: Mapping[str, str]) -> Callable[..., AbstractContextManager[None]]:
    """Puts this process, and all it starts, into the environment of the software NPU for a while."""

    @contextmanager
    def inside(**variables: str) -> Iterator[None]:
        # Two rows of each product are computed: a sweep proves the way of the data, not the numbers.
        changes = {**software_npu, "SOFTWARE_NPU_ROWS": "2", **variables}
        before = {name: os.environ.get(name) for name in changes}
        os.environ.update(changes)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    return inside


@pytest.fixture(scope="session")
def described(npu_python: Path, on_software_npu: Callable[..., AbstractContextManager[None]]) -> Description:
    """What the npu agent says of the software NPU."""
    with on_software_npu():
        return describe(str(npu_python), "npu")


@pytest.fixture
def npu_point() -> Callable[..., dict[str, Any]]:
    """Maker of points: a small INT8 product with a FRACTAL_NZ weight, changed as asked."""

    def make(number: int, **changes: Any) -> dict[str, Any]:
        nothing = (
            "group_list", "group_list_type", "allocation_regime", "allocated_rows", "local_experts",
            "group_shape", "m_e", "tuning_config",
        )  # fmt: skip
        point = {
            "point_id": f"{number:016x}", "operation": "quant_matmul", "axis": "m", "axis_value": 8,
            "linear": "wq_a", "m": 8, "m_executed": 8, "k": 256, "n": 128, "dtype_x": "int8",
            "dtype_w": "int8", "dtype_out": "bfloat16", "weight_format_requested": "FRACTAL_NZ",
            "launch_mode": "eager", "graph_buckets": None, "transposed_w": False, **dict.fromkeys(nothing),
        }  # fmt: skip
        return point | changes

    return make


@pytest.fixture
def npu_plan(described: Description, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Maker of process plans for the software NPU."""
    method = default_method("npu")

    def make(
        points: list[dict[str, Any]], amount: Mapping[str, int] | None = None, **changes: Any
    ) -> dict[str, Any]:
        amounts = {
            "samples": 4, "min_sample_ns": 100_000, "max_point_ns": 200_000_000, "warm_up_max_rounds": 8,
            "profiled_calls": 3, "discard_budget": 2,
        }  # fmt: skip
        plan = {
            "schema_version": 1, "run_id": "01JTEST0000000000000000000", "experiment": "C",
            "experiment_name": "weight_format", "plan_hash": "0123456789abcdef", "arm": "nz", "role": "main",
            "kind": "timing", "process_index": 0, "block": 0, "seed": 7, "agent": "npu", "lease_id": "lease",
            "build": {"label": "software", "build_id": described.build_id}, "method": method,
            "method_hash": method_hash(method), "amount": {**amounts, **(amount or {})},
            "lock_path": str(tmp_path / "npu.lock"), "env": {}, "points": points,
        }  # fmt: skip
        return plan | changes

    return make


@pytest.fixture(scope="session")
def software_tilings() -> Callable[..., None]:
    """Writes the table of predicted tilings that the software NPU logs from."""
    write: Callable[..., None] = _module(SOFTWARE_NPU / "tiling_table.py").write_tilings
    return write
