"""The report's curves over builds, and what a saving can move at most."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.publish.conftest import Sweep, table
from tilewatch.tasks.publish.run_report.content import ReportContent
from tilewatch.tasks.publish.run_report.layer import layer_tables
from tilewatch.tasks.publish.run_report.over_builds import over_builds
from tilewatch.tasks.publish.run_report.report import render_report

BUILDS = ("cann-a", "cann-b", "cann-c", "cann-d")


def series_of(point: dict[str, Any], values: dict[str, float], event_at: str) -> list[dict[str, Any]]:
    return [
        {
            "build": build, "run_id": f"run-{build}", "agent": "npu", "evidence": "simulated",
            "experiment": point["experiment"], "arm": point["arm"], "point_id": point["point_id"],
            "started_ns": place, "position": place, "value_ns": value,
            "reference_ns": 20_000.0 if place else None, "ratio": value / 20_000.0 if place else None,
            "fence_ratio": 1.06 if place else None, "fence_reason": "relative floor" if place else None,
            "event": "fence" if build == event_at else "none",
        }
        for place, (build, value) in enumerate(values.items())
    ]  # fmt: skip


@pytest.fixture
def followed() -> ReportContent:
    """A sweep of the newest of four builds; of two followed points one left its fence there."""
    tables = Sweep("cann-d", "run-cann-d", "npu").tables()
    quiet, slowed = tables["points"].to_pylist()[:2]
    rows = series_of(quiet, dict.fromkeys(BUILDS, 20_000.0), "")
    rows += series_of(slowed, dict.fromkeys(BUILDS, 20_000.0) | {"cann-d": 26_000.0}, "cann-d")
    return ReportContent(**tables, series=table("series", rows))


def test_the_point_that_left_its_fence_comes_first_with_its_numbers(followed: ReportContent) -> None:
    found = over_builds(followed)
    assert found
    assert found.sentence == "2 points over 4 archived runs: 1 × outside the fence."
    (event,) = found.events
    assert event[0] == "outside the fence"
    assert event[2:] == ("cann-d", "20.0 µs", "26.0 µs", "×1.30", "×1.06", "relative floor")
    assert found.curves[0].title == event[1]
    drawn = {trace["name"]: trace for trace in json.loads(found.curves[0].figure)["data"]}
    assert drawn["point value"]["y"][-1] == 26_000.0
    assert drawn["outside the fence"]["text"] == ["×1.30"]


def test_two_runs_are_no_series(followed: ReportContent) -> None:
    two = followed.series.filter(pa.compute.is_in(followed.series["build"], pa.array(BUILDS[:2])))
    tables = {name: getattr(followed, name) for name in ("runs", "captures", "points", "samples")}
    assert over_builds(ReportContent(**tables, series=two)) is None
    assert 'id="builds"' not in render_report(ReportContent(**tables))
    assert 'id="builds"' in render_report(followed)


def test_a_saving_is_bounded_by_what_the_step_owns_and_the_parts_add_up() -> None:
    parts = {"dense": 30_000, "attention": 50_000, "idle": 20_000}
    exposed = table(
        "exposed_times",
        [
            {"capture_id": "c" * 32, "build": "cann-d", "arm": "bf16", "category": name, "busy_ns": part,
             "exposed_ns": part, "step_ns": 100_000, "kernels": 0 if name == "idle" else 4}
            for name, part in parts.items()
        ],
    )  # fmt: skip
    ledger = table(
        "ledger",
        [
            {"build": "cann-d", "linear": "wq_a", "m": m, "allocation_regime": "", "t_bf16_ns": 10_000.0,
             "net_ns": net, "outcome": "int8_wins"}
            for m, net in ((16, 2_000.0), (64, 4_000.0))
        ],
    )  # fmt: skip
    (found,) = layer_tables(exposed, ledger)
    assert [row[0] for row in found.rows] == ["attention", "dense", "idle"]
    assert [row[4] for row in found.rows] == ["50.0%", "30.0%", "20.0%"]
    (bound,) = found.bounds
    assert "40% of T_bf16 (wq_a, M 64)" in bound
    assert bound.endswith("gets shorter by 12.0% at most.")
    (without,) = layer_tables(exposed, ledger.slice(0, 0))
    assert without.bounds == []
