"""Writing what a table holds already commits nothing; what differs in anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tilewatch.infra.tables import TableStore

Rows = Callable[..., pa.Table]


def _kernels(rows: Rows, *captures: str, **changes: Any) -> pa.Table:
    kernel = {"run_id": "R1", "build": "cpu", "duration_ns": 7, "input_shapes": [[8], [4]], "flags": None}
    both = [{"capture_id": c, "kernel_index": i, **kernel} for c in captures for i in range(2)]
    return rows("kernels", [*both[:-1], {**both[-1], **changes}])


def _versions(tables: TableStore) -> int:
    return len(tables.history("kernels"))


def test_the_same_rows_again_in_another_order_commit_nothing(tables: TableStore, rows: Rows) -> None:
    tables.write("kernels", _kernels(rows, "c1", "c2"))
    before = _versions(tables)
    again = _kernels(rows, "c2", "c1")
    assert tables.write("kernels", again, unless_same=True) is None
    assert _versions(tables) == before


@pytest.mark.parametrize(
    "change",
    [{"duration_ns": 8}, {"input_shapes": [[8, 4]]}, {"flags": []}, {"name": "MatMul"}],
)
def test_a_single_cell_that_differs_is_written(
    tables: TableStore, rows: Rows, change: dict[str, Any]
) -> None:
    tables.write("kernels", _kernels(rows, "c1"))
    changed = _kernels(rows, "c1", **change)
    assert tables.write("kernels", changed, unless_same=True) is not None
    assert tables.scan("kernels").sort_by("kernel_index").equals(changed)


def test_of_several_captures_only_the_one_that_is_new_is_written(
    local_tables: TableStore, rows: Rows
) -> None:
    local_tables.write("kernels", _kernels(rows, "c1"))
    before = set(DeltaTable(local_tables.uri("kernels")).file_uris())
    local_tables.write("kernels", _kernels(rows, "c1", "c2"), unless_same=True)
    assert before < set(DeltaTable(local_tables.uri("kernels")).file_uris())
    assert local_tables.scan("kernels").num_rows == 4


def test_a_row_more_or_less_is_a_difference(tables: TableStore, rows: Rows) -> None:
    two = _kernels(rows, "c1")
    tables.write("kernels", two)
    tables.write("kernels", two.slice(0, 1), unless_same=True)
    assert tables.scan("kernels").num_rows == 1
    tables.write("kernels", two, unless_same=True)
    assert tables.scan("kernels").num_rows == 2


def test_rows_without_a_capture_are_compared_one_by_one(tables: TableStore, rows: Rows) -> None:
    def checks(**changes: Any) -> pa.Table:
        both = [{"check_id": "run", "capture_id": None}, {"check_id": "one", "capture_id": "c1"}]
        return rows("checks", [{**both[0], **changes}, both[1]])

    tables.write("checks", checks())
    assert tables.write("checks", checks(), unless_same=True) is None
    assert tables.write("checks", checks(detail="observed 3"), unless_same=True) is not None
    assert sorted(tables.scan("checks")["check_id"].to_pylist()) == ["one", "run"]


def test_a_capture_that_lost_all_its_rows_is_emptied_once(tables: TableStore, rows: Rows) -> None:
    run = {
        "captures": rows("captures", [{"capture_id": "c1", "run_id": "R1"}]),
        "kernels": _kernels(rows, "c1"),
    }
    tables.write_run(run)
    emptied = run | {"kernels": run["kernels"].slice(0, 0)}
    assert list(tables.write_run(emptied, unless_same=True)) == ["kernels"]
    assert tables.scan("kernels").num_rows == 0
    assert tables.write_run(emptied, unless_same=True) == {}


def test_a_table_that_is_not_there_yet_is_written(tables: TableStore, rows: Rows) -> None:
    assert tables.write("kernels", _kernels(rows, "c1"), unless_same=True) is not None
    assert tables.scan("kernels").num_rows == 2
