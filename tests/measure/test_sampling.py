"""Batches, rotation, limits and the discard budget of the sampler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.measure.run import measure_process

Make = Callable[..., dict[str, Any]]
AMOUNT = {
    "samples": 6, "min_sample_ns": 2_000, "max_point_ns": 10**9, "warm_up_max_rounds": 8, "discard_budget": 2,
}  # fmt: skip


@pytest.fixture
def sampler(program: Path) -> Callable[..., Any]:
    """Maker of samplers that watch this process."""
    import cpu_backend  # type: ignore[import-not-found]
    import guard  # type: ignore[import-not-found]
    import interference  # type: ignore[import-not-found]
    import sampling  # type: ignore[import-not-found]

    class Watch(guard.Guard):  # type: ignore[misc]
        def __init__(self) -> None:
            """No signal handlers in the test process."""

        def check(self) -> None:
            """Nothing ends a test."""

    def make(**amount: int) -> Any:
        run = cpu_backend.CpuBackend().run
        return sampling.Sampler(AMOUNT | amount, Watch(), interference.Interference(None), run)

    return make


def test_every_call_takes_the_next_weight_copy_across_batches(sampler: Callable[..., Any]) -> None:
    order: list[int] = []
    calls = [lambda number=number: order.append(number) for number in range(3)]
    rows: list[dict[str, Any]] = []
    sampler().take("p", calls, rows)
    assert order == [i % 3 for i in range(len(order))]
    assert sum(row["calls"] for row in rows) == len(order)


def test_rows_are_numbered_by_point_and_positions_by_process(sampler: Callable[..., Any]) -> None:
    one = sampler()
    rows: list[list[dict[str, Any]]] = [[], []]
    for point, into in zip("ab", rows, strict=True):
        one.take(point, [lambda: None], into)
    assert [row["sample"] for row in rows[1]] == list(range(len(rows[1])))
    assert [row["position"] for row in rows[0] + rows[1]] == list(range(len(rows[0]) + len(rows[1])))
    assert one.in_calls_ns == sum(row["interval_ns"] for row in rows[0] + rows[1])


def test_the_time_limit_leaves_three_samples_at_least(sampler: Callable[..., Any]) -> None:
    rows: list[dict[str, Any]] = []
    timing = sampler(max_point_ns=1, discard_budget=0).take("p", [lambda: None], rows)
    assert (timing.kept, timing.stopped_by, timing.steady) == (3, "max_point_ns", False)
    assert "warm_up_not_steady" in timing.flags


def test_a_call_that_raises_loses_no_finished_batch(sampler: Callable[..., Any]) -> None:
    done = iter(range(5))
    rows: list[dict[str, Any]] = []
    with pytest.raises(StopIteration):
        sampler(min_sample_ns=1).take("p", [lambda: next(done)], rows)
    assert len(rows) == 5


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").is_file(), reason="the kernel counts no waiting")
def test_a_crowded_core_spends_the_discard_budget_and_the_rest_is_kept_and_flagged(
    plan: Make, point: Make, tmp_path: Path
) -> None:
    core = max(os.sched_getaffinity(0))
    crowd = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    neighbour = subprocess.Popen([sys.executable, "-c", crowd])
    try:
        made = plan([point(1)], {"min_sample_ns": 20_000_000, "max_point_ns": 60_000_000_000})
        measure_process(made, tmp_path / "c", python=sys.executable, timeout_s=120)
    finally:
        neighbour.kill()
        neighbour.wait()
    samples = [json.loads(line) for line in (tmp_path / "c" / "samples.jsonl").read_text().splitlines()]
    timed = [s for s in samples if not s["warm_up"]]
    assert [s["discard_reason"] for s in timed if s["discarded"]] == ["preempted"] * 2
    kept = [s for s in timed if not s["discarded"]]
    assert len(kept) == 4 and {s["discard_reason"] for s in kept} == {"preempted; kept, budget spent"}
    (record,) = [json.loads(line) for line in (tmp_path / "c" / "points.jsonl").read_text().splitlines()]
    assert record["timing"]["flags"][-1] == "discard_budget_spent"
    environment = json.loads((tmp_path / "c" / "environment.json").read_text())
    assert neighbour.pid in [busy["pid"] for busy in environment["tenants"]["during"]["busy"]]
