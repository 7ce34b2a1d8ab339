"""The measuring program runs on Python 3.9 syntax, in an environment that has nothing but numpy and torch."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.measure.run import PROGRAM, MeasureError, describe, measure_process

Make = Callable[..., dict[str, Any]]
FILES = sorted(PROGRAM.parent.glob("*.py"))
MEASURED_WITH = {"numpy", "torch"}
ONLY_ON_A_DEVICE = {"torch_npu"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_program_parses_as_python_3_9(file: Path) -> None:
    ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 9))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_program_imports_only_the_standard_library_numpy_torch_and_itself(file: Path) -> None:
    own = {f.stem for f in FILES}
    imported = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None
            imported.add(node.module.split(".")[0])
    assert imported - own <= MEASURED_WITH | ONLY_ON_A_DEVICE | set(sys.stdlib_module_names)
    assert not own & set(sys.stdlib_module_names)


@pytest.fixture(scope="module")
def second_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Interpreter of a virtual environment with numpy, torch and what these two require, by links."""
    root = tmp_path_factory.mktemp("second")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root)], check=True)
    (packages,) = root.glob("lib/python*/site-packages")
    for name in required(MEASURED_WITH):
        for file in metadata.distribution(name).files or ():
            top = Path(str(file)).parts[0]
            source = Path(str(metadata.distribution(name).locate_file(top)))
            if top not in ("..", "__pycache__") and source.exists() and not (packages / top).exists():
                (packages / top).symlink_to(source)
    return root / "bin" / "python"


def required(names: set[str]) -> set[str]:
    """Distributions in ``names`` and all they require, extras left out."""
    found: set[str] = set()
    todo = set(names)
    while todo:
        found |= todo
        lines = [line for name in todo for line in metadata.requires(name) or () if "extra ==" not in line]
        wanted = {re.split(r"[\s;<>=!~\[(]", line)[0] for line in lines}
        todo = {name for name in wanted if _is_installed(name)} - found
    return found


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def test_the_second_environment_has_none_of_our_other_dependencies(second_environment: Path) -> None:
    for package in ("pyarrow", "pydantic", "duckdb", "orjson", "prefect", "tasks"):
        tried = subprocess.run(
            [str(second_environment), "-c", f"import {package}"], capture_output=True, cwd="/"
        )
        assert tried.returncode == 1, package


def test_the_program_measures_in_an_environment_that_has_only_numpy_and_torch(
    second_environment: Path, plan: Make, point: Make, tmp_path: Path
) -> None:
    build = {"label": "second", "build_id": describe(str(second_environment), "cpu").build_id}
    outcome = measure_process(
        plan([point(1)], build=build), tmp_path / "c", python=str(second_environment), timeout_s=60
    )
    assert (outcome.status, outcome.reason) == ("complete", None)


def test_a_python_without_torch_is_named_with_its_setting(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    with pytest.raises(MeasureError, match="has no (torch|numpy); .* TILEWATCH_MEASURE_PYTHON"):
        describe(str(tmp_path / "bare" / "bin" / "python"), "cpu")
