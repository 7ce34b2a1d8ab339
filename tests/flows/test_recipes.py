"""Every recipe exists once: a verb and a flow of one name run the same steps, and come to the same."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tilewatch.flows.cli.app import app
from tilewatch.flows.experiments import experiments
from tilewatch.flows.steps.judge import judge
from tilewatch.flows.steps.prepare import prepare
from tilewatch.flows.steps.requests import CompareRequest, SweepRequest
from tilewatch.flows.steps.runner import Runner
from tilewatch.flows.steps.sweep import sweep_runs
from tilewatch.infra.archive import open_archive
from tilewatch.infra.settings import load_settings
from tilewatch.tasks.analyse.comparison import compare as compare_module

ROOT = Path(__file__).parents[2]
OTHER_NAMES = {"run": "sweep", "upgrade": "cann_upgrade"}
OLD, NEW = "sim-cann8.5.0", "sim-cann9.0.0"


def functions(module: Path) -> dict[str, set[str]]:
    """What every function of a module calls, of the packages ``flows`` and ``flows.steps``, by full name."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    names = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tilewatch.flows")
        for alias in node.names
    }
    return {
        made.name: {
            names[call.func.id]
            for call in ast.walk(made)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in names
        }
        for made in tree.body
        if isinstance(made, ast.FunctionDef)
    }


def verbs() -> dict[str, set[str]]:
    """What every verb of the first level calls, through the functions of its own module too."""
    found = {}
    for module in (ROOT / "flows" / "cli").glob("*.py"):
        calls = functions(module)
        everything = set().union(*calls.values())
        found |= {name: everything for name in calls if not name.startswith("_")}
    return found


def test_a_verb_runs_the_flow_of_its_name_or_the_same_recipe() -> None:
    known, missed = verbs(), []
    flows = {path.stem for path in (ROOT / "flows").glob("*.py")}
    pairs = {verb: OTHER_NAMES.get(verb, verb) for verb in known if OTHER_NAMES.get(verb, verb) in flows}
    assert {"run", "upgrade", "compare", "ingest", "reanalyse"} <= pairs.keys()
    for verb, flow in pairs.items():
        module = functions(ROOT / "flows" / f"{flow}.py")
        recipe = {
            n for calls in module.values() for n in calls if ".flows.steps." in n and "requests" not in n
        }
        runs_the_flow = f"tilewatch.flows.{flow}.{flow}" in known[verb]
        same = {n for n in recipe & known[verb] if not n.endswith("Runner")}
        if not (runs_the_flow or same):
            missed.append(f"{verb} goes past flow {flow}, which calls {sorted(recipe)}")
    assert missed == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_verb_reanalyse_judges_again_what_rests_on_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWATCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TILEWATCH_LOCK_FOLDER", str(tmp_path / "locks"))
    settings = load_settings()
    runner, known = Runner(settings), experiments(settings)
    with open_archive(settings) as archive:
        asked = [
            SweepRequest(
                experiments=("A",), arm="standalone", preset="smoke", agent="simulated", build=build, seed=7
            )
            for build in (OLD, NEW)
        ]
        runs = [sweep_runs(runner, [prepare(settings, archive, one, known)])[0].run_id for one in asked]
        first = judge(runner, CompareRequest(baseline=OLD, candidate=NEW))
        assert first.created and first.address.endswith("/v1")
        monkeypatch.setattr(compare_module, "ANALYSIS_VERSION", compare_module.ANALYSIS_VERSION + 1)

        done = CliRunner().invoke(app, ["reanalyse", runs[0]])
        assert done.exit_code == 0 and "1 runs, 1 comparisons, 0 verdicts changed" in done.output
        rows = archive.tables.scan("comparisons")
        assert versions(rows) == {1, 2}
        later = [r["analysis_version"] for r in rows.to_pylist() if r["version"] == 2]
        assert set(later) == {compare_module.ANALYSIS_VERSION}


def versions(rows: object) -> set[int]:
    return set(rows["version"].to_pylist())  # type: ignore[index]
