"""The rules of the repository: what imports what, how large things are, and that README tells the truth."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from tilewatch.flows.cli.readme import with_blocks
from tilewatch.flows.steps.requests import SweepRequest
from tilewatch.infra.settings import Settings

ROOT = Path(__file__).parents[1]
PACKAGES = ("flows", "tasks", "infra", "data_contracts")
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOORS = ("cli", "deployments", "agents", "site", "notebook.py")
LAYERS = ("data_contracts", "tasks", "infra", "steps", "flows", "doors")
"""From the ground up: a module imports its own layer and those before it."""
WARN_MODULE_LINES, MAX_FUNCTION_LINES = 400, 50


def modules() -> Iterator[tuple[str, ast.Module, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            yield path.relative_to(ROOT).as_posix(), ast.parse(text), text


def imported(tree: ast.Module) -> set[str]:
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    froms = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module and not n.level]
    members = {f"{n.module}.{a.name}" for n in froms for a in n.names}
    return names | {n.module for n in froms if n.module} | members


def layer(path: str) -> str:
    """The layer of a module, by its path below the repository."""
    top, *rest = path.split("/")
    if top != "flows":
        return top
    if rest[0] in DOORS:
        return "doors"
    return "steps" if rest[0] in ("steps", "experiments") else "flows"


def own_imports(tree: ast.Module) -> set[str]:
    """The files of ours that a module imports: a member that is a module counts instead of its package."""
    froms = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module and not n.level]
    pairs = [(n.module or "", a.name) for n in froms for a in n.names]
    plain = [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
    found = {_file_of(f"{module}.{name}") or _file_of(module) for module, name in pairs}
    return {f for f in found | {_file_of(name) for name in plain} if f}


def _file_of(module: str) -> str | None:
    """The file of one of our modules or packages, below the repository; None for anything else."""
    if not module.startswith("tilewatch."):
        return None
    stem = module.removeprefix("tilewatch.").replace(".", "/")
    return next((f for f in (f"{stem}.py", f"{stem}/__init__.py") if (ROOT / f).is_file()), None)


def test_imports_go_one_way() -> None:
    wrong = [
        f"{path} imports {name}"
        for path, tree, _ in modules()
        for name in own_imports(tree)
        if LAYERS.index(layer(name)) > LAYERS.index(layer(path))
    ]
    assert wrong == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {path: own_imports(tree) - {path} for path, tree, _ in modules()}
    graph |= {path: _program_imports(path, tree) for path, tree, _ in modules() if _in_program(path)}
    graphlib.TopologicalSorter(graph).prepare()


def _in_program(path: str) -> bool:
    return path.startswith(("tasks/measure/program/", "tasks/measure/reference_server/"))


def _program_imports(path: str, tree: ast.Module) -> set[str]:
    """What a module of the programs imports by bare name, as files."""
    folders = {Path(path).parent.as_posix(), "tasks/measure/program"}
    return {
        f"{folder}/{n}.py"
        for n in imported(tree)
        for folder in folders
        if (ROOT / f"{folder}/{n}.py").is_file()
    }


def test_tasks_know_neither_prefect_nor_stores() -> None:
    for path, tree, _ in modules():
        if path.startswith("tasks/"):
            assert not {"prefect", "boto3", "deltalake"} & {n.split(".")[0] for n in imported(tree)}, path


def test_functions_stay_small_and_large_modules_are_told() -> None:
    for path, _, text in modules():
        if (lines := text.count("\n")) > WARN_MODULE_LINES:
            warnings.warn(f"{path} has {lines} lines; is it one idea?", stacklevel=1)
    long = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree, _ in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > _limit(path)
    ]
    assert long == []


def _limit(path: str) -> int:
    """A verb's signature is its list of options, one a line or more; it does not count as a body."""
    return 2 * MAX_FUNCTION_LINES if path.startswith("flows/cli/") else MAX_FUNCTION_LINES


def test_the_command_line_and_the_flows_never_import_great_expectations() -> None:
    code = (
        "import sys, tilewatch.flows.cli.app; from tilewatch.flows import sweep, compare, regression; "
        "print('great_expectations' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_command_line_does_not_import_prefect_before_it_is_needed() -> None:
    names = "('prefect', 'torch', 'pandas')"
    code = f"import sys, tilewatch.flows.cli.app; print([m for m in {names} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "prefect" not in done.stdout and "torch" not in done.stdout


def test_the_generated_blocks_of_readme_are_as_generated() -> None:
    assert with_blocks(README) == README, "run: .venv/bin/python -m tilewatch.flows.cli.readme"


def test_readme_has_every_word_that_a_table_or_a_verdict_uses() -> None:
    words = ["FASTER", "SLOWER", "SAME", "UNDECIDED", "MISSING", "step", "comb", "spike", "drop", "silent"]
    words += ["capture", "sample", "kernel", "cliff", "ledger", "quarantine", "run", "point", "tiling"]
    glossary = README[README.index("## Glossary") : README.index("## Where things are")]
    assert [w for w in words if w not in glossary] == []


def test_readme_names_every_package_of_the_tree() -> None:
    tree = README[README.index("## Where things are") : README.index("## Extend it")]
    stages = [p.name for p in (ROOT / "tasks").iterdir() if (p / "__init__.py").is_file()]
    filled = [s for s in stages if len(list((ROOT / "tasks" / s).glob("*.py"))) > 1]
    assert [s for s in filled if f"{s}/" not in tree] == []
    assert all((ROOT / name).exists() for name in re.findall(r"^(\w+)/", tree, re.MULTILINE))


def test_readme_names_the_presets_and_the_make_targets() -> None:
    assert all(f"`{p}`" in README for p in ("smoke", "quick", "full"))
    targets = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"run", "test", "help", "lint", "types", "soak"} <= set(targets)
    assert [t for t in re.findall(r"`make ([a-z]+)", README) if t not in targets] == []


def test_readme_shows_commands_that_exist() -> None:
    shown = re.findall(r"^\.venv/bin/tilewatch (\w+)", README, re.MULTILINE)
    assert shown and all(re.search(rf"`tilewatch {verb}[ `]", README) for verb in shown)


def test_every_field_of_a_flow_form_and_every_setting_is_described() -> None:
    for model in (SweepRequest, Settings):
        assert [n for n, f in model.model_fields.items() if not f.description] == []


def test_the_lock_pins_what_the_project_depends_on() -> None:
    lock = {
        re.split(r"==", line)[0].lower().replace("_", "-"): line
        for line in (ROOT / "requirements.lock").read_text().splitlines()
    }
    assert lock["torch"] == "torch==2.13.0"
    pyproject = (ROOT / "pyproject.toml").read_text()
    block = pyproject[pyproject.index("dependencies = [") : pyproject.index("[project.optional")]
    names = [re.split(r"[>=\[]", n)[0].lower() for n in re.findall(r'"([^"]+)"', block)]
    assert [n for n in names if n not in lock] == []
    assert not [line for line in lock.values() if "@" in line or "file:" in line]
