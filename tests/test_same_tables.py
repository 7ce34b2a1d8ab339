"""The script that holds two versions of the code against each other sees every value."""

from __future__ import annotations

import math

import pyarrow as pa

from tests.same_tables import Difference, differences

ROWS = {"arm": ["nd", "nz", None], "ratio": [1.0, math.nan, None], "runs": [["r1"], [], None]}


def test_equal_tables_have_no_difference_null_and_nan_included() -> None:
    assert differences({"t": pa.table(ROWS)}, {"t": pa.table(ROWS)}) == []


def test_one_changed_value_a_lost_null_and_a_changed_list_are_found_with_their_column() -> None:
    changed = {"arm": ["nd", "nz", "bf16"], "ratio": [1.0, 2.0, None], "runs": [["r1"], ["r2"], None]}
    assert differences({"t": pa.table(ROWS)}, {"t": pa.table(changed)}) == [
        Difference("t", "arm", "1 of 3 values, the first: None -> bf16"),
        Difference("t", "ratio", "1 of 3 values, the first: nan -> 2.0"),
        Difference("t", "runs", "1 of 3 values, the first: [] -> ['r2']"),
    ]


def test_a_table_a_column_or_a_row_of_one_side_only_is_a_difference() -> None:
    before, after = pa.table(ROWS), pa.table({**ROWS, "new": [1, 2, 3]})
    assert differences({"t": before, "gone": before}, {"t": after}) == [
        Difference("gone", "", "only before"),
        Difference("t", "new", "column only after"),
    ]
    assert differences({"t": before}, {"t": before.slice(1)}) == [
        Difference("t", "", "3 rows before, 2 after")
    ]
