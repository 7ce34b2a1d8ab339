"""Simulated captures: the real formats, the same bytes for the same seed, and never measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulate.conftest import STARTED_NS, Simulate, Tables, planned
from tilewatch.tasks.collect.manifest import CaptureError, write_manifest
from tilewatch.tasks.plan.experiment import Experiment
from tilewatch.tasks.read.captures.operator_capture import read_capture
from tilewatch.tasks.simulate.builds import SimulationError, simulated_build
from tilewatch.tasks.simulate.capture import NotSimulatedError, write_capture
from tilewatch.tasks.simulate.sweep import simulate_run

BUILD = simulated_build("sim-cann9.0.0")


@pytest.fixture(scope="module")
def smoke(simulate: Simulate, experiments: dict[str, Experiment]) -> Tables:
    return simulate(BUILD, list(experiments.values()), preset="smoke")


def folders(experiments: dict[str, Experiment], root: Path, seed: int = 5) -> list[Path]:
    document = planned(BUILD, [experiments["A"]], preset="smoke", seed=seed)
    return [path for path, _ in simulate_run(document, BUILD, root)["A"]]


def test_every_row_of_every_table_says_simulated(smoke: Tables) -> None:
    for name, table in smoke.items():
        if "evidence" in table.column_names and table.num_rows:
            assert set(table["evidence"].to_pylist()) == {"simulated"}, name
    assert smoke["quarantine"].num_rows == 0
    assert set(smoke["runs"]["status"].to_pylist()) == {"complete"}


def test_a_plan_of_another_agent_is_not_simulated(experiments: dict[str, Experiment], tmp_path: Path) -> None:
    document = planned(BUILD, [experiments["A"]], preset="smoke")
    plan = document.plans["A"]
    facts = {"run_id": "x", "lease_id": "x", "build": {}, "method": {}, "method_hash": "x", "agent": "npu"}
    with pytest.raises(NotSimulatedError, match="agent npu"):
        write_capture(plan.document(plan.processes[0], facts), tmp_path / "c", BUILD, STARTED_NS)
    assert not (tmp_path / "c").exists()


def test_a_simulated_capture_that_calls_itself_measured_is_refused(
    experiments: dict[str, Experiment], tmp_path: Path
) -> None:
    folder = folders(experiments, tmp_path)[0]
    capture = json.loads((folder / "capture.json").read_text())
    (folder / "capture.json").write_text(json.dumps({**capture, "evidence": "measured"}))
    (folder / "manifest.json").unlink()
    write_manifest(folder)
    with pytest.raises(CaptureError, match="agent simulated with evidence measured"):
        read_capture(folder, raw_prefix="raw")


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not(
    experiments: dict[str, Experiment], tmp_path: Path
) -> None:
    one, again = (folders(experiments, tmp_path / name) for name in ("one", "again"))
    other = folders(experiments, tmp_path / "other", seed=6)
    assert [(f / "manifest.json").read_bytes() for f in one] == [
        (f / "manifest.json").read_bytes() for f in again
    ]
    assert (one[0] / "samples.jsonl").read_bytes() != (other[0] / "samples.jsonl").read_bytes()


def test_tiling_is_read_back_from_the_log_and_belongs_to_its_points(smoke: Tables) -> None:
    rows = smoke["alignments"].to_pylist()
    assert {row["status"] for row in rows} == {"aligned"}
    points = {(p["experiment"], p["arm"], p["point_id"]): p for p in smoke["points"].to_pylist()}
    a = {
        points[r["experiment"], r["arm"], r["point_id"]]["m"]: r
        for r in rows
        if (r["experiment"], r["arm"]) == ("A", "standalone")
    }
    assert [(a[m]["tiling_key"], a[m]["used_core_num"]) for m in (16, 64)] == [("100", 4), ("100", 16)]
    d = [r for r in rows if (r["experiment"], r["arm"]) == ("D", "int8") and r["base_m"] == 128]
    assert d and {(r["base_n"], r["aiv_aic_ratio"], r["workspace_bytes"]) for r in d} == {
        (256, "1:1", 29360128)
    }


def test_a_log_that_lacks_a_launch_attributes_nothing(
    experiments: dict[str, Experiment], tmp_path: Path
) -> None:
    (folder,) = (f for f in folders(experiments, tmp_path) if f.name == "standalone-tiling-002")
    (log,) = (folder / "log").iterdir()
    lines = log.read_text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if "kernel info" in line)
    log.write_text("".join(lines[first + 1 :]))
    (folder / "manifest.json").unlink()
    write_manifest(folder)
    tables = read_capture(folder, raw_prefix="raw")
    assert tables.tilings["point_id"].null_count == tables.tilings.num_rows > 0
    (refused,) = tables.quarantine.to_pylist()
    assert refused["rule"] == "tiling_count"
    assert "expected 6 DynamicQuant launches, found 5 DynamicQuant" in refused["reason"]


def test_what_cannot_be_simulated_names_what_can() -> None:
    with pytest.raises(SimulationError, match="known: sim-cann8.5.0"):
        simulated_build("cann-1")
    with pytest.raises(SimulationError, match="only SoCs of NpuArch 2201"):
        simulated_build(None, "Ascend950PR_9599")


def test_kernels_are_read_from_the_profilers_file_with_cores_blocks_and_formats(smoke: Tables) -> None:
    kernels = smoke["kernels"].to_pylist()
    assert {Path(row["source_file"]).name for row in kernels} == {"kernel_details.csv"}
    assert all(row["point_id"] is not None for row in kernels)
    cores = {(row["op_type"], row["task_type"]) for row in kernels}
    assert ("DynamicQuant", "AI_VECTOR_CORE") in cores and ("QuantBatchMatmulV3", "MIX_AIC") in cores
    nz = [row for row in kernels if row["arm"] == "nz"]
    assert nz and {tuple(row["input_formats"]) for row in nz} == {("ND", "FRACTAL_NZ")}
    blocks = {(r["arm"], r["point_id"]): r["block_dim"] for r in smoke["tilings"].to_pylist()}
    assert all(row["block_dim"] == blocks[row["arm"], row["point_id"]] for row in nz)


def test_what_cannot_be_simulated_is_one_sentence_on_the_command_line(tmp_path: Path) -> None:
    words = ["run", "A", "--agent", "simulated", "--build", "cann-1"]
    done = subprocess.run(
        [str(Path(sys.executable).parent / "tilewatch"), *words],
        env={**os.environ, "TILEWATCH_HOME": str(tmp_path)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2 and "no simulated build cann-1; known: sim-cann8.5.0" in done.stderr
    assert "Traceback" not in done.stderr
