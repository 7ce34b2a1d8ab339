"""Exposed time: ownership of overlaps, idle time, and parts that add up to the step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tilewatch.data_contracts import schema
from tilewatch.tasks.analyse.savings.exposed import COMMUNICATION, exposed_times, saving_bound


def kernels(make_table: Any, rows: list[tuple[str, int, int]], **more: Any) -> pa.Table:
    """Kernels from (category, start, end)."""
    names = ["category", "start_ns", "duration_ns"]
    columns = dict(zip(names, zip(*[(c, s, e - s) for c, s, e in rows], strict=True), strict=True))
    lists = {name: list(values) for name, values in columns.items()}
    return make_table(
        "kernels", len(rows), {**lists, "evidence": "measured", "kernel_index": np.arange(len(rows)), **more}
    )


def parts(table: pa.Table) -> dict[str, int]:
    return {row["category"]: row["exposed_ns"] for row in table.to_pylist()}


def test_parts_and_idle_add_up_to_the_step(make_table: Any) -> None:
    table = exposed_times(kernels(make_table, [("norm", 0, 10), ("dense", 15, 40), ("attention", 40, 50)]))
    assert table.schema.equals(schema("exposed_times"))
    assert parts(table) == {"norm": 10, "dense": 25, "attention": 10, "idle": 5}
    assert set(table["step_ns"].to_pylist()) == {50}


def test_communication_under_computing_costs_nothing(make_table: Any) -> None:
    table = exposed_times(kernels(make_table, [("dispatch", 0, 30), ("dense", 10, 20), ("norm", 40, 50)]))
    assert parts(table) == {"dispatch": 20, "dense": 10, "norm": 10, "idle": 10}


def test_of_two_computing_kernels_the_one_that_started_first_owns_the_overlap(make_table: Any) -> None:
    table = exposed_times(kernels(make_table, [("expert", 0, 30), ("attention", 20, 50)]))
    assert parts(table) == {"expert": 30, "attention": 20, "idle": 0}


def test_a_communication_listed_twice_counts_once(make_table: Any) -> None:
    table = exposed_times(
        kernels(make_table, [("collective", 0, 20), ("collective", 0, 20), ("norm", 20, 30)])
    )
    assert parts(table) == {"collective": 20, "norm": 10, "idle": 0}
    busy = {row["category"]: row["busy_ns"] for row in table.to_pylist()}
    assert busy["collective"] == 40


def test_steps_and_devices_are_kept_apart(make_table: Any) -> None:
    rows = [("norm", 0, 10), ("norm", 5, 15), ("norm", 100, 110)]
    table = exposed_times(kernels(make_table, rows, step_id=[1, 1, 2], device_id=[0, 1, 0]))
    found = {(r["device_id"], r["step_id"], r["category"]): r["exposed_ns"] for r in table.to_pylist()}
    assert found[0, 1, "norm"] == found[1, 1, "norm"] == found[0, 2, "norm"] == 10
    assert len(found) == 6


def test_random_steps_match_counting_every_nanosecond(make_table: Any) -> None:
    draw = np.random.default_rng(1)
    names = ["norm", "dense", "expert", "dispatch", "combine", "collective"]
    for _ in range(20):
        starts = draw.integers(0, 300, 40)
        rows = [
            (str(draw.choice(names)), int(s), int(s + d))
            for s, d in zip(starts, draw.integers(1, 30, 40), strict=True)
        ]
        rows.sort(key=lambda row: (row[1], row[2], row[0]))
        slow = dict.fromkeys([*{row[0] for row in rows}, "idle"], 0)
        for time in range(min(r[1] for r in rows), max(r[2] for r in rows)):
            running = [r for r in rows if r[1] <= time < r[2]]
            computing = [r for r in running if r[0] not in COMMUNICATION]
            owner = (computing or running or [("idle", 0, 0)])[0]
            slow[owner[0]] += 1
        assert parts(exposed_times(kernels(make_table, rows))) == slow


def test_a_saving_can_move_the_step_by_its_exposed_share_at_most(make_table: Any) -> None:
    table = exposed_times(kernels(make_table, [("dense", 0, 30), ("attention", 30, 90), ("norm", 95, 100)]))
    assert saving_bound(table, "dense", 0.5) == pytest.approx(0.15)
    assert saving_bound(table, "router", 0.5) == 0.0
