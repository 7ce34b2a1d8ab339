"""The server runs where the measuring program runs: Python 3.9 syntax, numpy and torch, nothing else."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.measure.reference_server.conftest import SERVER
from tilewatch.tasks.measure.run import PROGRAM

FILES = sorted(SERVER.parent.glob("*.py"))
OWN = {file.stem for file in FILES}
PROGRAMS = {file.stem for file in PROGRAM.parent.glob("*.py")}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_server_is_python_3_9_and_imports_torch_numpy_and_the_two_programs_only(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 9))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None
            imported.add(node.module.split(".")[0])
    assert imported - OWN - PROGRAMS <= {"numpy", "torch"} | set(sys.stdlib_module_names)


def test_no_module_of_the_server_hides_one_of_the_program_or_of_python() -> None:
    assert sorted(OWN & PROGRAMS) == ["main"]
    assert not OWN & set(sys.stdlib_module_names)
