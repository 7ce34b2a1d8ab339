"""Predictions beside observed tiling records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from tilewatch.data_contracts import conform, from_rows
from tilewatch.tasks.predict.environment import platform
from tilewatch.tasks.predict.questions.for_points import point_predictions
from tilewatch.tasks.predict.questions.observation import compare
from tilewatch.tasks.predict.questions.releases import Releases

C910 = platform("Ascend910_9391")
RELEASES = Releases({"cann": "9.1.0"})
POINT = {
    "experiment": "B", "arm": "nz", "operator": "quant_matmul", "k": 4096, "n": 1024, "dtype_x": "int8",
    "dtype_w": "int8", "dtype_out": "bfloat16", "weight_format": "FRACTAL_NZ", "transposed_w": False,
}  # fmt: skip


def points(*rows: Mapping[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(
        [POINT | {"point_id": f"p{row['m']}", "m_executed": row["m"]} | row for row in rows]
    )


def seen(predicted: pa.Table, **changes: Any) -> list[dict[str, Any]]:
    """Observed rows that say what was predicted, with ``changes``."""
    return [
        {
            "capture_id": "c" * 32, "run_id": "r", "build": "b", "build_id": "i",
            "experiment": row["experiment"], "arm": row["arm"], "point_id": row["point_id"],
            "tiling_index": index, "evidence": "measured",
            "op_type": row["op_type"], "tiling_key": row["tiling_key"], "key_source": "tiling_log",
            "block_dim": row["block_dim"], "base_m": row["base_m"], "fields": dict(row["fields"]), "pid": 1,
            "source_file": "plog", "source_line": index + 1, **changes,
        }
        for index, row in enumerate(predicted.to_pylist())
    ]  # fmt: skip


@pytest.fixture
def predicted() -> pa.Table:
    return point_predictions(points({"m": 16}, {"m": 95}, {"m": 128}), C910, RELEASES)


def test_point_predictions_keep_the_contract(predicted: pa.Table) -> None:
    table = conform("predictions", predicted.drop_columns(["experiment", "arm", "point_id"]))
    assert table["block_dim"].to_pylist() == [16, 8, 16]
    assert table["tiling_key"].to_pylist() == ["24"] * 3


def test_points_without_a_predictor_have_no_row() -> None:
    table = point_predictions(points({"m": 16, "operator": "matmul"}), C910, RELEASES)
    assert table.num_rows == 0


def test_grouped_points_carry_their_own_group_list() -> None:
    grouped = {
        "operator": "grouped_matmul", "n": 4096, "allocated_rows": 9216, "local_experts": 16,
        "group_list_type": 1, "group_list": [129] * 15 + [0], "m_e": 121, "tuning_config": None, "m": 1935,
    }  # fmt: skip
    skewed = grouped | {"group_list": [641] + [86] * 15, "m_e": 121, "m": 1931}
    (row,) = point_predictions(points(grouped), C910, RELEASES).to_pylist()
    assert (row["units_per_expert"], row["rounds"], row["m"]) == (32, 20, 9216)
    (row,) = point_predictions(points(skewed), C910, RELEASES).to_pylist()
    assert (row["units_per_expert"], row["rounds"]) == (6 * 16, 14)  # (6 + 15) × 16 blocks over 24 cores


def test_records_that_say_what_was_predicted_agree_in_every_field(predicted: pa.Table) -> None:
    found = compare(predicted, from_rows("tilings", seen(predicted)))
    by_field = {row["field"]: (row["compared"], row["differ"]) for row in found.by_field.to_pylist()}
    assert by_field["tiling_key"] == by_field["block_dim"] == by_field["stepKa"] == (3, 0)
    assert found.disagreements.num_rows == 0


def test_a_disagreement_is_listed_with_both_values_and_its_possible_reasons(predicted: pa.Table) -> None:
    rows = seen(predicted)
    rows[1]["block_dim"] = 16
    found = compare(predicted, from_rows("tilings", rows))
    (row,) = found.disagreements.to_pylist()
    assert (row["point_id"], row["field"], row["predicted"], row["observed"]) == (
        "p95",
        "block_dim",
        "8",
        "16",
    )
    assert "closed whitelist" in row["reasons"] and "cores are limited" in row["reasons"]


def test_repeated_launches_of_a_point_count_once(predicted: pa.Table) -> None:
    rows = seen(predicted)
    found = compare(predicted, from_rows("tilings", rows + [row | {"tiling_index": 9} for row in rows]))
    assert {row["compared"] for row in found.by_field.to_pylist()} == {3}


def test_a_later_operator_version_is_compared_as_the_same_operator(predicted: pa.Table) -> None:
    found = compare(predicted, from_rows("tilings", seen(predicted, op_type="QuantBatchMatmulV4")))
    assert {row["operator"] for row in found.by_field.to_pylist()} == {"QuantBatchMatmulV3"}


def test_an_unknown_prediction_is_never_compared() -> None:
    unknown = point_predictions(points({"m": 16}), C910.limited(22), RELEASES)
    assert unknown["unknown_reason"].null_count == 0
    rows = seen(unknown, tiling_key="20", block_dim=16)
    assert compare(unknown, from_rows("tilings", rows)).by_field.num_rows == 0


def test_simulated_records_keep_rows_of_their_own(predicted: pa.Table) -> None:
    rows = seen(predicted) + seen(predicted, evidence="simulated", capture_id="d" * 32)
    found = compare(predicted, from_rows("tilings", rows))
    assert {row["evidence"] for row in found.by_field.to_pylist()} == {"measured", "simulated"}
