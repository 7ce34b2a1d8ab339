"""The real torch_npu on the software NPU: an interpreter of its own and the driver, built once."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest

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
