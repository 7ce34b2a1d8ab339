"""One process of the npu agent on the real torch_npu: what it leaves, proves, refuses and never claims."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from tilewatch.tasks.collect.manifest import CaptureError, write_manifest
from tilewatch.tasks.measure.method import default_method, method_hash
from tilewatch.tasks.measure.run import Description, measure_process
from tilewatch.tasks.read.captures.operator_capture import CaptureTables, read_capture

Make = Callable[..., Any]
BF16 = {"dtype_x": "bfloat16", "dtype_w": "bfloat16"}
GROUPED = {
    "operation": "grouped_matmul", "local_experts": 3, "group_list": [5, 0, 3], "group_list_type": 1,
    "allocated_rows": 8, "m_e": 5,
}  # fmt: skip


def all_operations(point: Make) -> list[dict[str, Any]]:
    return [
        point(1, operation="dynamic_quant"),
        point(2, operation="quant_linear"),
        point(3, operation="tuple_input"),
        point(4, weight_format_requested="ND"),
        point(5, operation="matmul", **BF16),
        point(6, **GROUPED, tuning_config=5),
        point(7, **GROUPED, **BF16),
    ]


@pytest.fixture(scope="module")
def made(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Captures by kind, measured once."""
    return {}


@pytest.fixture
def capture(
    made: dict[str, Any], npu_plan: Make, npu_point: Make, npu_python: Path, on_software_npu: Make,
    tilings: Path, tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Path]:  # fmt: skip
    def of(kind: str) -> Path:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind) / "capture"
            plan = npu_plan(all_operations(npu_point), kind=kind)
            with on_software_npu(SOFTWARE_NPU_TILINGS=str(tilings)):
                outcome = measure_process(plan, folder, python=str(npu_python), timeout_s=120)
            assert outcome.status == "complete", f"{outcome.reason}\n{outcome.log_tail}"
            made[kind] = folder
        return Path(made[kind])

    return of


@pytest.fixture
def tilings(npu_point: Make, software_tilings: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target: Path = tmp_path_factory.mktemp("tilings") / "tilings.tsv"
    software_tilings(all_operations(npu_point), target)
    return target


def read(folder: Path) -> CaptureTables:
    return read_capture(folder, raw_prefix="raw")


def test_kernels_of_torch_npu_get_their_points_and_name_the_function_that_ran(capture: Make) -> None:
    tables = read(capture("timing"))
    assert tables.quarantine.num_rows == 0
    assert {name.rsplit("/", 1)[-1] for name in tables.kernels["source_file"].to_pylist()} == {
        "kernel_details.csv"
    }
    proved = {row["point_id"][-1]: row["dispatched_operator"] for row in tables.observed.to_pylist()}
    assert proved == {
        "1": "aclnnDynamicQuantV2",
        "2": "aclnnQuantMatmulWeightNz",
        "3": "aclnnQuantMatmulWeightNz",
        "4": "aclnnQuantMatmulV5",
        "5": "aclnnMatmulWeightNz",
        "6": "aclnnGroupedMatmulWeightNz",
        "7": "aclnnGroupedMatmulWeightNz",
    }
    by_point = Counter((point or "lead in")[-1] for point in tables.kernels["point_id"].to_pylist())
    assert by_point == {"n": 2, "1": 3, "2": 6, "3": 3, "4": 3, "5": 3, "6": 3, "7": 3}
    columns = (tables.kernels[name].to_pylist() for name in ("step_id", "point_id"))
    steps = dict(zip(*columns, strict=True))
    assert [(step, (point or "lead in")[-1]) for step, point in sorted(steps.items())] == [
        (0, "n"), *((number, str(number)) for number in range(1, 8))
    ]  # fmt: skip


def test_tuple_input_leaves_no_dynamic_quant_kernel(capture: Make) -> None:
    kernels = read(capture("timing")).kernels
    mine = kernels.filter(pc.equal(kernels["point_id"], f"{3:016x}"))
    assert set(mine["op_type"].to_pylist()) == {"QuantBatchMatmulV3"}


def test_samples_carry_device_time_by_events_and_host_time_of_enqueueing(capture: Make) -> None:
    rows = read(capture("timing")).samples.to_pylist()
    timed = [row for row in rows if row["duration_ns"] is not None]
    assert timed and all(row["device_event_ns"] == row["duration_ns"] for row in timed)
    assert all(row["host_enqueue_ns"] > 0 for row in timed)
    assert [row["null_reason"] for row in rows if row["duration_ns"] is None] == ["tuple_input"]


def test_a_tiling_process_logs_every_launch_and_times_nothing(capture: Make) -> None:
    tables = read(capture("tiling"))
    assert tables.quarantine.num_rows == 0 and tables.samples.num_rows == 0 and tables.kernels.num_rows == 0
    records = [row for row in tables.tilings.to_pylist() if row["point_id"] is not None]
    assert len(records) == 3 * (7 + 1)  # three calls a point; the quantised linear launches two kernels
    hinted = [row for row in records if row["point_id"] == f"{6:016x}"]
    assert {row["op_type"] for row in hinted} == {"GroupedMatmul"}
    assert len({row["tiling_key"] for row in hinted}) == 1 and hinted[0]["base_n"] == 256
    saw = {row["point_id"][-1]: row["tuning_config"] for row in records if row["op_type"] == "GroupedMatmul"}
    assert saw == {"6": 5, "7": 0}  # the hint of the hinted arm reached the host's tiling, and only its
    assert {Path(row["source_file"]).parent.name for row in records} == {"plog"}


def test_a_timing_process_runs_without_tiling_logs(capture: Make) -> None:
    folder = capture("timing")
    assert not list(folder.rglob("plog-*.log"))
    variables = json.loads((folder / "capture.json").read_text())["environment_variables"]
    assert variables["ASCEND_MODULE_LOG_LEVEL"] == ""


def test_what_the_software_npu_leaves_is_simulated(capture: Make, described: Description) -> None:
    assert described.facts["evidence"] == "simulated" and "software" in described.device_class
    for kind in ("timing", "tiling"):
        tables = read(capture(kind))
        for table in (tables.captures, tables.samples, tables.kernels, tables.tilings):
            assert set(table["evidence"].to_pylist()) <= {"simulated"}


def test_what_the_software_npu_leaves_cannot_be_filed_as_measured(capture: Make, tmp_path: Path) -> None:
    forged = tmp_path / "forged"
    forged.mkdir()
    for path in capture("tiling").iterdir():
        if path.is_file() and path.name != "manifest.json":
            (forged / path.name).write_bytes(path.read_bytes())
    document = json.loads((forged / "capture.json").read_text())
    (forged / "capture.json").write_text(json.dumps(document | {"evidence": "measured"}))
    write_manifest(forged)
    with pytest.raises(CaptureError, match="software NPU, but filed as measured"):
        read(forged)


def test_a_weight_that_stayed_nd_fails_the_arm_instead_of_being_labelled_nz(
    npu_plan: Make, npu_point: Make, npu_python: Path, on_software_npu: Make, tmp_path: Path
) -> None:
    plan = npu_plan([npu_point(1)], env={"TILEWATCH_FORBID_INTERNAL_FORMAT": "1"})
    with on_software_npu():
        outcome = measure_process(plan, tmp_path / "c", python=str(npu_python), timeout_s=60)
    assert outcome.status == "failed" and outcome.reason is not None
    assert "the weight stayed ND where FRACTAL_NZ was asked for" in outcome.reason
    tables = read(outcome.capture_dir)
    assert tables.samples.num_rows == 0
    (row,) = tables.observed.to_pylist()
    assert row["status"] == "failed" and row["weight_format"] is None and "stayed ND" in row["reason"]


def test_the_build_names_torch_npu_cann_and_the_stand_in(described: Description) -> None:
    assert {"torch", "torch_npu", "cann", "software_npu"} <= described.components.keys()
    assert (described.cores, described.facts["vector_cores"]) == (24, 48)


def test_graph_replay_is_refused_with_what_the_driver_lacks_since_the_software_npu_has_no_graphs(
    npu_plan: Make, npu_point: Make, npu_python: Path, on_software_npu: Make, tmp_path: Path
) -> None:
    point = npu_point(1, m=6, m_executed=8, launch_mode="npugraph", graph_buckets=[1, 8, 16])
    method = default_method("npu", graphs=True)
    plan = npu_plan([point], method=method, method_hash=method_hash(method))
    with on_software_npu():
        outcome = measure_process(plan, tmp_path / "c", python=str(npu_python), timeout_s=60)
    assert outcome.status == "failed" and outcome.reason is not None
    assert "torch.npu.NPUGraph captures nothing here" in outcome.reason
    assert "measure launch mode eager" in outcome.reason
    assert read(outcome.capture_dir).samples.num_rows == 0
    warnings.warn(
        "graph replay is not shown here: the software NPU has no graphs. "
        "On a host with an NPU run tests/npu/check_npugraph_on_device.py",
        stacklevel=1,
    )
