"""Baselines: approved with a name and a reason, derived from archived runs, never vacuous."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tilewatch.data_contracts import schema
from tilewatch.tasks.analyse.comparison.baselines import approve, unarmed
from tilewatch.tasks.analyse.tables import AnalysisError, RunTables, join

APPROVAL: dict[str, Any] = {
    "name": "cann-9.0 decode", "approved_by": "a colleague", "reason": "first release", "approved_ns": 7,
}  # fmt: skip


def values(points: int = 4, processes: int = 5) -> Any:
    return np.rint(20_000 * np.exp(0.01 * np.random.default_rng(1).normal(size=(points, processes))))


def test_a_baseline_is_the_median_of_archived_process_values(make_run: Any) -> None:
    measured = values()
    table = approve(make_run(measured), **APPROVAL)
    assert table.schema.equals(schema("baselines"))
    assert sorted(table["value_ns"].to_pylist()) == sorted(np.median(measured, axis=1))
    row = table.to_pylist()[0]
    assert (row["name"], row["reason"], row["run_ids"]) == ("cann-9.0 decode", "first release", ["run1"])


@pytest.mark.parametrize("missing", ["name", "approved_by", "reason"])
def test_a_baseline_without_name_approver_or_reason_is_refused(make_run: Any, missing: str) -> None:
    with pytest.raises(AnalysisError, match="a baseline needs"):
        approve(make_run(values()), **{**APPROVAL, missing: " "})


def test_a_vacuous_value_is_refused(make_run: Any) -> None:
    with pytest.raises(AnalysisError, match="a value of 1 ns or less passes everything"):
        approve(make_run(np.ones((2, 5))), **APPROVAL)


def test_too_few_processes_are_refused(make_run: Any) -> None:
    with pytest.raises(AnalysisError, match="fewer than 5 processes"):
        approve(make_run(values(processes=2)), **APPROVAL)


def test_a_void_run_is_refused_by_name(make_run: Any) -> None:
    run = make_run(values())
    place = run.runs.schema.get_field_index("status")
    runs = run.runs.set_column(place, run.runs.schema.field("status"), pa.array(["void"]))
    with pytest.raises(AnalysisError, match="run run1 quant_matmul is void"):
        approve(RunTables(runs, run.captures, run.points, run.samples, run.alignments), **APPROVAL)


def test_runs_of_two_methods_are_refused(make_run: Any) -> None:
    other = make_run(values(), run_id="run2", capture={"method_hash": "method2"})
    with pytest.raises(AnalysisError, match="several device classes, agents, evidences or methods"):
        approve(join([make_run(values()), other]), **APPROVAL)


def test_a_point_without_a_baseline_is_not_armed(make_run: Any) -> None:
    table = approve(make_run(values(4)), **APPROVAL)
    assert unarmed(table, make_run(values(4)).points).num_rows == 0
    (row,) = unarmed(table, make_run(values(5)).points).to_pylist()
    assert row["not_armed"] == "not armed: no baseline value"


def test_the_vacuous_baselines_of_a_public_nightly_are_all_found(detectors: Path) -> None:
    path = detectors / "vllm_ascend_nightly_baselines.tsv"
    found = duckdb.sql(
        f"SELECT file AS experiment, path AS arm, row_number() OVER ()::VARCHAR AS point_id, "
        f"baseline::DOUBLE AS value_ns FROM read_csv('{path}', delim='\t', all_varchar=true) "
        "WHERE case_type = 'performance'"
    ).to_arrow_table()
    assert found.num_rows == 77
    rows = unarmed(found, found)
    assert rows.num_rows == 19
    assert all(reason.endswith("passes everything") for reason in rows["not_armed"].to_pylist())
