"""Series in the archive: brought up run by run, idempotent, in order whoever writes when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tilewatch.flows.steps.series import events, follow
from tilewatch.infra.tables import TableStore
from tilewatch.tasks.analyse.tables import RunTables, join

POINTS, DAY_NS = 3, 86_400 * 10**9


def run(make_run: Any, day: int, factor: float = 1.0, **runs: Any) -> RunTables:
    """Run ``r<day>`` of build ``b<day>``; point 2 is ``factor`` times as slow as on other days."""
    run_id = f"r{day:02d}"
    values = 20_000 * np.exp(0.002 * np.random.default_rng(day).normal(size=(POINTS, 5)))
    values[1] *= factor
    made: RunTables = make_run(values, run_id=run_id, build=f"b{day:02d}", lease=f"l{day}")
    row = made.runs
    for name, value in {"started_ns": day * DAY_NS, "sample_count": POINTS * 5, **runs}.items():
        place = row.schema.get_field_index(name)
        row = row.set_column(place, row.schema.field(name), pa.array([value], row.schema.field(name).type))
    return replace(made, runs=row)


def archive(tables: TableStore, *runs: RunTables) -> None:
    """Store runs as a sweep does, but their series."""
    both = join(runs)
    tables.write_run({name: getattr(both, name) for name in ("runs", "captures", "points", "samples")})


@pytest.fixture
def tables(tmp_path: Path, make_run: Any) -> TableStore:
    """An archive of six builds whose series is up to date; the last one slowed one point by 40 %."""
    made = TableStore(tmp_path)
    archive(made, *(run(make_run, day, 1.4 if day == 5 else 1.0) for day in range(6)))
    follow(made)
    return made


def test_the_slowed_build_is_outside_the_fence_and_nothing_else_is(tables: TableStore) -> None:
    assert tables.scan("series").num_rows == 6 * POINTS
    (row,) = events(tables, every=False).to_pylist()
    assert (row["event"], row["build"], row["axis_value"], row["linear"]) == ("fence", "b05", 2, "wq_a")
    assert row["ratio"] == pytest.approx(1.4, abs=0.02)
    assert events(tables, every=True, experiment="quant_matmul", linear="wq_a").num_rows == 6 * POINTS


def test_one_more_run_costs_one_run_and_again_nothing(tables: TableStore, make_run: Any) -> None:
    archive(tables, run(make_run, 6))
    assert set(follow(tables, ["r06"])) == {"r05", "r06"}, "the spike of r05 is known once r06 is back"
    version = len(tables.history("series"))
    assert follow(tables, ["r06"]) == ()
    assert len(tables.history("series")) == version
    assert events(tables, every=False)["event"].to_pylist() == ["spike"]


def test_what_is_kept_run_by_run_is_what_all_samples_give_at_once(
    tables: TableStore, make_run: Any, tmp_path: Path
) -> None:
    once = TableStore(tmp_path / "once")
    archive(once, *(run(make_run, day, 1.4 if day == 5 else 1.0) for day in reversed(range(6))))
    archive(tables, run(make_run, 6))
    follow(tables)
    archive(once, run(make_run, 6))
    assert len(follow(once)) == 7
    order = [("point_id", "ascending"), ("run_id", "ascending")]
    assert once.scan("series").sort_by(order).equals(tables.scan("series").sort_by(order))


def test_a_run_measured_before_others_takes_its_place_and_a_void_one_none(
    tables: TableStore, make_run: Any
) -> None:
    tables.delete("runs", run_id="r02")
    assert "r02" in follow(tables)
    assert pc.max(tables.scan("series")["position"]).as_py() == 4
    archive(tables, run(make_run, 2), run(make_run, 7, status="void"))
    follow(tables)
    rows = tables.scan("series", [("run_id", "==", "r02")])
    assert set(rows["position"].to_pylist()) == {2}
    assert not tables.scan("series", [("run_id", "==", "r07")]).num_rows


def test_an_empty_archive_has_no_series(tmp_path: Path) -> None:
    empty = TableStore(tmp_path)
    assert follow(empty) == ()
    assert events(empty, every=True).num_rows == 0
