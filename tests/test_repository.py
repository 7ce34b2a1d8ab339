"""The rules of the repository: what imports what, how large things are, and that README tells the truth."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from flows.requests import SweepRequest
from infra.cli.readme import with_blocks
from infra.settings import Settings

ROOT = Path(__file__).parents[1]
PACKAGES = ("flows", "tasks", "infra", "data_contracts")
README = (ROOT / "README.md").read_text(encoding="utf-8")
ALLOWED = {
    "data_contracts": {"data_contracts"},
    "tasks": {"tasks", "data_contracts"},
    "infra": {"infra", "tasks", "data_contracts"},
    "flows": {"flows", "infra", "tasks", "data_contracts"},
    "infra/cli": {"flows", "infra", "tasks", "data_contracts"},
    "infra/deployments": {"flows", "infra", "tasks", "data_contracts"},
}
TOP_LAYER = ("infra.cli", "infra.deployments")
MAX_MODULE_LINES, MAX_FUNCTION_LINES = 300, 50


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
    tops = (top for top in ("infra/cli", "infra/deployments") if path.startswith(top))
    return next(tops, path.split("/")[0])


def test_imports_go_one_way() -> None:
    wrong = [
        f"{path} imports {name}"
        for path, tree, _ in modules()
        for name in imported(tree)
        if name.split(".")[0] in PACKAGES and name.split(".")[0] not in ALLOWED[layer(path)]
    ]
    assert wrong == []


def test_nothing_imports_the_top_layer() -> None:
    wrong = [
        f"{path} imports {name}"
        for path, tree, _ in modules()
        for name in imported(tree)
        if name.startswith(TOP_LAYER) and layer(path) not in ("infra/cli", "infra/deployments")
    ]
    assert wrong == []


def test_tasks_know_neither_prefect_nor_stores() -> None:
    for path, tree, _ in modules():
        if path.startswith("tasks/"):
            assert not {"prefect", "boto3", "deltalake"} & {n.split(".")[0] for n in imported(tree)}, path


def test_modules_and_functions_stay_small() -> None:
    large = [p for p, _, text in modules() if text.count("\n") > MAX_MODULE_LINES]
    long = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree, _ in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > _limit(path)
    ]
    assert (large, long) == ([], [])


def _limit(path: str) -> int:
    """A verb's signature is its list of options, one a line or more; it does not count as a body."""
    return 2 * MAX_FUNCTION_LINES if path.startswith("infra/cli/") else MAX_FUNCTION_LINES


def test_the_command_line_and_the_flows_never_import_great_expectations() -> None:
    code = (
        "import sys, infra.cli.app, flows.sweep, flows.compare, flows.regression; "
        "print('great_expectations' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_command_line_does_not_import_prefect_before_it_is_needed() -> None:
    code = "import sys, infra.cli.app; print([m for m in ('prefect', 'torch', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "prefect" not in done.stdout and "torch" not in done.stdout


def test_the_generated_blocks_of_readme_are_as_generated() -> None:
    assert with_blocks(README) == README, "run: .venv/bin/python -m infra.cli.readme"


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
