"""Simulated runs through the entire chain: plan, captures on disk, readers, tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tilewatch.tasks.analyse.tables import RunTables
from tilewatch.tasks.derive.operators import derive
from tilewatch.tasks.plan.experiment import Experiment, load_experiments
from tilewatch.tasks.plan.plan import Plan, Request, make_plan
from tilewatch.tasks.plan.run_document import RunDocument
from tilewatch.tasks.simulate.builds import SimulatedBuild, simulated_build
from tilewatch.tasks.simulate.sweep import METHOD, run_document, simulate_run
from tilewatch.tasks.simulate.truth import Truth

STARTED_NS = 1_790_000_000_000_000_000
Tables = dict[str, pa.Table]
Simulate = Callable[..., Tables]


def sides(tables: Tables) -> RunTables:
    """One side of an analysis out of all tables of a run."""
    return RunTables(**{f.name: tables[f.name] for f in fields(RunTables)})


def build_with(truth: Truth, name: str = "sim-cann8.5.0", component: str = "a") -> SimulatedBuild:
    """A simulated build with ``truth`` planted; ``component`` makes builds of the same behaviour differ."""
    build = simulated_build(name)
    return replace(
        build, label=f"{name}-{component}", components={**build.components, "part": component}, truth=truth
    )


def dense(linears: Sequence[str], last: int = 48, processes: int = 6) -> Experiment:
    """QuantMatmul alone, every M from 1 to ``last``, linears of one shape on which the model is flat."""
    return Experiment.model_validate({
        "schema_version": 1,
        "letter": "B",
        "name": "quant_matmul",
        "question": "Is what was planted found?",
        "records": ["duration_ns"],
        "axis": {"name": "m", "values": list(range(1, last + 1))},
        "cases": [{"linear": linear, "k": 4096, "n": 1024} for linear in linears],
        "arms": [{
            "name": "tuple_input", "description": "QuantMatmul alone", "operation": "quant_matmul",
            "dtype_x": "int8", "dtype_w": "int8", "dtype_out": "bfloat16", "weight_format": "FRACTAL_NZ",
        }],
        "presets": {"quick": {"processes": processes, "samples": 6, "max_point_ms": 10}},
    })  # fmt: skip


@pytest.fixture(scope="session")
def experiments(repository: Path) -> dict[str, Experiment]:
    """The four experiments that ship with the product."""
    return load_experiments(repository / "flows" / "experiments")


@pytest.fixture(scope="session")
def simulate(tmp_path_factory: pytest.TempPathFactory) -> Simulate:
    """Simulates a run of the experiments and derives all its tables."""

    def run(
        build: SimulatedBuild,
        chosen: Sequence[Experiment],
        *,
        run_id: str = "01RUN",
        preset: str = "quick",
        seed: int = 5,
        method: Mapping[str, Any] = METHOD,
    ) -> Tables:
        document = planned(build, chosen, run_id=run_id, preset=preset, seed=seed, method=method)
        captures = simulate_run(document, build, tmp_path_factory.mktemp("simulated"))
        return derive(document, captures)

    return run


def planned(
    build: SimulatedBuild, chosen: Sequence[Experiment], *, run_id: str = "01RUN", preset: str = "quick",
    seed: int = 5, method: Mapping[str, Any] = METHOD,
) -> RunDocument:  # fmt: skip
    """The document of a simulated run."""
    request = Request(preset, "simulated", seed)
    plans: dict[str, Plan] = {e.letter: make_plan(e, request) for e in chosen}
    return run_document(
        build, plans, run_id=run_id, started_ns=STARTED_NS, preset=preset, seed=seed, method=method
    )
