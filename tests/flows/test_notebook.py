"""`import tilewatch` is the one door for Python: its names, and every example in their docstrings."""

from __future__ import annotations

import doctest
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import tilewatch
from tilewatch.flows import notebook
from tilewatch.tasks.predict.errors import PredictError

ROOT = Path(__file__).parents[2]
OF_THE_ARCHIVE = {"load", "compare", "ingest"}
EXAMPLES = """
import doctest, tilewatch
from tilewatch.flows import notebook
import tasks
assert tasks.MINE == "a project with a package of that name"
failed, tried = 0, 0
for name in tilewatch.__all__:
    found = doctest.DocTestFinder().find(getattr(notebook, name), name, globs={"tilewatch": tilewatch})
    for example in found:
        result = doctest.DocTestRunner().run(example)
        failed, tried = failed + result.failed, tried + result.attempted
print(f"{tilewatch.__file__} tried {tried} failed {failed}")
"""


def test_every_name_has_an_example_and_those_without_an_archive_come_true() -> None:
    assert set(tilewatch.__all__) == {"change_points", "cliffs", "compare", "ingest", "load", "predict"}
    assert tilewatch.__all__ == dir(tilewatch)
    for name in tilewatch.__all__:
        (example,) = doctest.DocTestFinder().find(
            getattr(tilewatch, name), name, globs={"tilewatch": tilewatch}
        )
        assert example.examples, f"{name} has no example"
        if name not in OF_THE_ARCHIVE:
            result = doctest.DocTestRunner().run(example)
            assert (result.failed, result.attempted) == (0, len(example.examples))


def test_a_prediction_names_what_it_does_not_know() -> None:
    with pytest.raises(PredictError, match="operation: 'matmul': known are dynamic_quant"):
        notebook.predict("matmul", m=1)
    with pytest.raises(PredictError, match="rows: no field of dynamic_quant; known are m, k"):
        notebook.predict("dynamic_quant", rows=1)
    with pytest.raises(PredictError, match="n: quant_matmul needs it"):
        notebook.predict("quant_matmul", m=1, k=4096)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_wheel_runs_beside_a_project_that_has_its_own_tasks_package(tmp_path: Path) -> None:
    python = installed_wheel(tmp_path)
    project = tmp_path / "project"
    (project / "tasks").mkdir(parents=True)
    (project / "tasks" / "__init__.py").write_text('MINE = "a project with a package of that name"\n')
    result = {"backend": "sglang", "duration": 2.0, "completed": 3, "total_output_tokens": 12}
    (project / "my_results").mkdir()
    (project / "my_results" / "bench.jsonl").write_text(json.dumps(result) + "\n")
    weed = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if weed is None:
        pytest.skip("the program of the embedded store is not installed")
    home = tmp_path / "home"
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV") and not name.startswith("TILEWATCH_")
    }
    environment |= {"TILEWATCH_HOME": str(home), "TILEWATCH_LOCK_FOLDER": str(tmp_path / "locks")}
    environment["PATH"] = f"{Path(weed).parent}{os.pathsep}{environment['PATH']}"

    def run(*words: str, **more: str) -> str:
        done = subprocess.run(
            words, cwd=project, env=environment | more, capture_output=True, text=True, timeout=800
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "SIMULATED: " in run(str(python.parent / "tilewatch"), "demo", "--no-open")
    said = run(str(python), "-c", EXAMPLES, TILEWATCH_HOME=str(home / "demo"))
    assert said.splitlines()[-1].endswith("failed 0"), said
    assert str(tmp_path / "venv") in said.splitlines()[-1], "the checkout answered, not the wheel"


def installed_wheel(folder: Path) -> Path:
    """The interpreter of a new environment with tilewatch as a wheel and, by a path, its dependencies."""
    source, built, made = folder / "source", folder / "wheels", folder / "venv"
    left = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "build")
    shutil.copytree(ROOT, source, symlinks=True, ignore=left)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    build = ("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(built), str(source))
    subprocess.run([*pip, *build], check=True, timeout=300)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True, timeout=120)
    python = made / "bin" / "python"
    (wheel,) = built.glob("tilewatch-*.whl")
    install = ("--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    subprocess.run([*pip, *install], check=True, timeout=300)
    own = next((made / "lib").glob("python*/site-packages"))
    searched = dict.fromkeys([sysconfig.get_path("purelib"), *sys.path])
    lines = [path for path in searched if Path(path).name == "site-packages" and Path(path).is_dir()]
    (own / "dependencies.pth").write_text("\n".join(lines) + "\n")
    return python
