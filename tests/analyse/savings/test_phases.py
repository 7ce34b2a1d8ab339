"""Phase costs: exposed times and idle add up to the steps of a phase, whatever overlaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tilewatch.data_contracts import schema
from tilewatch.tasks.analyse.savings.phases import outside_stages, phase_costs
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.profiler.profiler_folder import read_profiler

ORIGIN = Origin("c", "r", "b", "bi", "E", "nz", "measured", 0)


def steps(
    make_table: Any, rows: list[tuple[str, int, int]], *, bounds: bool, file: str = "DECODE.trace.json"
) -> pa.Table:
    """Steps from (phase, start, end)."""
    phase, start, end = (list(column) for column in zip(*rows, strict=True))
    columns = {"phase": phase, "start_ns": start, "end_ns": end, "step_id": np.arange(len(rows))}
    return make_table(
        "stage_steps",
        len(rows),
        {**columns, "bounds_kernels": bounds, "source_file": file, "evidence": "measured"},
    )


def kernels(
    make_table: Any, rows: list[tuple[str, int, int, int]], file: str = "DECODE.trace.json", **more: Any
) -> pa.Table:
    """Kernels from (category, step, start, end)."""
    category, step, start, end = (np.array(column) for column in zip(*rows, strict=True))
    columns = {
        "category": category.tolist(), "step_id": step, "start_ns": start, "duration_ns": end - start,
        "kernel_index": np.arange(len(rows)), "source_file": file, "evidence": "measured",
    }  # fmt: skip
    return make_table("kernels", len(rows), {**columns, **more})


def exposed(table: pa.Table) -> dict[tuple[str, str], int]:
    return {(r["phase"], r["category"]): r["exposed_ns"] for r in table.to_pylist()}


def adds_up(table: pa.Table) -> bool:
    sums = table.group_by(["capture_id", "phase"]).aggregate([("exposed_ns", "sum"), ("step_ns", "min")])
    return sums["exposed_ns_sum"].to_pylist() == sums["step_ns_min"].to_pylist()


def test_the_steps_of_a_phase_are_added_and_what_nothing_covers_is_idle(make_table: Any) -> None:
    marked = steps(make_table, [("decode", 0, 100), ("decode", 100, 220), ("prefill", 300, 400)], bounds=True)
    rows = [("dense", 0, 10, 40), ("norm", 0, 40, 50), ("dense", 1, 110, 150), ("attention", 2, 300, 390)]
    table = phase_costs(kernels(make_table, rows), marked)
    assert table.schema.equals(schema("phase_costs"))
    assert exposed(table) == {
        ("decode", "dense"): 70, ("decode", "norm"): 10, ("decode", "idle"): 140,
        ("prefill", "attention"): 90, ("prefill", "idle"): 10,
    }  # fmt: skip
    assert {(r["phase"], r["steps"], r["step_ns"]) for r in table.to_pylist()} == {
        ("decode", 2, 220), ("prefill", 1, 100),
    }  # fmt: skip


def test_on_overlapping_streams_every_instant_has_one_owner(make_table: Any) -> None:
    """Communication under computing costs nothing, a second stream only what it sticks out."""
    marked = steps(make_table, [("decode", 0, 100)], bounds=True)
    rows = [("dispatch", 0, 0, 50), ("expert", 0, 20, 40), ("dense", 0, 30, 70), ("combine", 0, 60, 90)]
    table = phase_costs(kernels(make_table, rows, stream_id=np.array([1, 2, 3, 1])), marked)
    assert exposed(table) == {
        ("decode", "dispatch"): 20, ("decode", "expert"): 20, ("decode", "dense"): 30,
        ("decode", "combine"): 20, ("decode", "idle"): 10,
    }  # fmt: skip
    assert sum(table["busy_ns"].to_pylist()) == 140


def test_a_device_step_reaches_from_its_first_start_to_its_last_end(make_table: Any) -> None:
    """The host only enqueues inside the mark, so that the mark's own times bound nothing on the device."""
    marked = steps(
        make_table,
        [("decode", 0, 10), ("decode", 10, 20)],
        bounds=False,
        file="a/ASCEND_PROFILER_OUTPUT/trace_view.json",
    )
    rows = [("dense", 0, 1000, 1030), ("norm", 0, 1040, 1050), ("dense", 1, 1100, 1120)]
    table = phase_costs(kernels(make_table, rows, "a/ASCEND_PROFILER_OUTPUT/kernel_details.csv"), marked)
    assert exposed(table) == {("decode", "dense"): 50, ("decode", "norm"): 10, ("decode", "idle"): 10}
    assert set(table["step_ns"].to_pylist()) == {70}


def test_the_same_step_numbers_in_two_stage_files_are_two_steps(make_table: Any) -> None:
    marked = pa.concat_tables([
        steps(make_table, [("decode", 0, 100)], bounds=True),
        steps(make_table, [("prefill", 0, 100)], bounds=True, file="EXTEND.trace.json"),
    ])  # fmt: skip
    both = pa.concat_tables([
        kernels(make_table, [("dense", 0, 0, 60)]),
        kernels(make_table, [("dense", 0, 0, 90)], "EXTEND.trace.json"),
    ])  # fmt: skip
    table = phase_costs(both, marked)
    assert exposed(table)["decode", "dense"] == 60 and exposed(table)["prefill", "dense"] == 90
    assert outside_stages(both, marked).num_rows == 0


def test_a_step_without_a_kernel_is_idle_and_a_kernel_without_a_step_does_not_count(make_table: Any) -> None:
    marked = steps(make_table, [("decode", 0, 100)], bounds=True)
    lost = kernels(make_table, [("dense", 0, 10, 20)], step_id=pa.nulls(1, pa.int64()))
    assert exposed(phase_costs(lost, marked)) == {("decode", "idle"): 100}


def test_random_streams_add_up_to_the_step(make_table: Any) -> None:
    draw = np.random.default_rng(5)
    names = ["norm", "dense", "expert", "dispatch", "combine", "collective", "quant"]
    for bounds in (True, False):
        rows = [
            (str(draw.choice(names)), step, 1000 * step + int(s), 1000 * step + int(s + d))
            for step in range(20)
            for s, d in zip(draw.integers(0, 800, 60), draw.integers(1, 150, 60), strict=True)
        ]
        marked = steps(make_table, [("decode", 1000 * i, 1000 * i + 990) for i in range(20)], bounds=bounds)
        assert adds_up(
            phase_costs(kernels(make_table, rows, stream_id=draw.integers(0, 4, len(rows))), marked)
        )


@pytest.mark.parametrize("sample", ["msinsight-pytorch-text/level1", "npu-mfu-analyzer-sample-cann850"])
def test_the_parts_of_real_device_profiles_add_up(sample: str, make_table: Any, shared: Path) -> None:
    """No public profile marks serving steps; each device's profiler step stands for one here."""
    results = read_profiler(shared / "samples/profiler" / sample, ORIGIN)
    found = [
        r.table
        for r in results.values()
        if r.table.column_names == schema("kernels").names and r.table.num_rows
    ]
    table = pa.concat_tables(found)
    step = pc.fill_null(table["step_id"], 0)
    table = table.set_column(table.column_names.index("step_id"), table.schema.field("step_id"), step)
    table = table.set_column(
        table.column_names.index("source_file"), table.schema.field("source_file"), [["k"] * table.num_rows]
    )
    numbers = sorted(set(step.to_pylist()))
    marked = make_table("stage_steps", len(numbers), {
        "capture_id": "c", "step_id": np.array(numbers), "phase": "decode", "bounds_kernels": False,
        "source_file": "k", "evidence": "measured",
    })  # fmt: skip
    costs = phase_costs(table, marked)
    assert adds_up(costs) and costs.num_rows > 3
