"""Coverage of a decode step: kernel sum and wall apart, nothing left out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.analyse.savings.decode_coverage import decode_coverage, predicted_types, swept_types

US = 1_000
STEP = [  # type, category, start, duration: streams overlap, and 10 µs at the end of the step are idle
    ("QuantBatchMatmulV3", "dense", 0, 30), ("MoeDistributeDispatch", "dispatch", 10, 40),
    ("GroupedMatmulSwigluQuant", "expert", 50, 20), ("FlashAttention", "attention", 60, 20),
    ("DynamicQuant", "quantisation", 90, 10),
]  # fmt: skip


def kernels(rows: list[tuple[str, str, int, int]], **changes: Any) -> pa.Table:
    same = {
        "capture_id": "c" * 32, "run_id": "r", "build": "b", "build_id": "i", "experiment": "ingested",
        "arm": "ingested", "evidence": "measured", "device_id": 0, "step_id": 1,
        "source_file": "kernel_details.csv",
    }  # fmt: skip
    made = [
        {
            **same, "op_type": op_type, "name": op_type, "category": category, "start_ns": start * US,
            "duration_ns": length * US, "source_line": index + 2, **changes,
        }
        for index, (op_type, category, start, length) in enumerate(rows)
    ]  # fmt: skip
    return from_rows("kernels", made)


def test_shares_of_kernel_sum_and_of_wall_are_told_apart() -> None:
    found = decode_coverage(kernels(STEP))
    assert found.share("swept", "sum_ns") == pytest.approx(40 / 120)
    assert found.share("swept", "wall_ns") == pytest.approx(40 / 100)
    assert found.share("predicted", "sum_ns") == pytest.approx(60 / 120)
    assert found.share("predicted", "wall_ns") == pytest.approx(60 / 100)


def test_every_operator_and_the_idle_time_are_there_with_their_time() -> None:
    found = {row.operator: row for row in decode_coverage(kernels(STEP)).operators}
    assert set(found) == {"QuantBatchMatmulV3", "dispatch", "GroupedMatmulSwigluQuant", "FlashAttention",
                          "DynamicQuant", "idle"}  # fmt: skip
    assert (found["dispatch"].sum_ns, found["dispatch"].wall_ns) == (40 * US, 20 * US)
    assert (found["FlashAttention"].sum_ns, found["FlashAttention"].wall_ns) == (20 * US, 10 * US)
    assert (found["idle"].kernels, found["idle"].wall_ns) == (0, 10 * US)
    assert sum(row.wall_ns or 0 for row in found.values()) == 100 * US


def test_the_sentence_names_the_largest_operators_outside() -> None:
    assert decode_coverage(kernels(STEP)).sentence == (
        "Of these steps the catalogue can sweep 33.3% of kernel time (40.0% of wall) and predict 50.0% of "
        "kernel time (60.0% of wall); outside: dispatch 33.3%, FlashAttention 16.7%."
    )


def test_without_start_times_the_share_of_wall_is_unknown_and_not_guessed() -> None:
    found = decode_coverage(kernels(STEP, start_ns=None))
    assert found.share("swept", "sum_ns") == pytest.approx(40 / 120)
    assert found.share("swept", "wall_ns") is None and "an unknown share of wall" in found.sentence


def test_a_profile_without_kernels_covers_nothing() -> None:
    found = decode_coverage(kernels([]))
    assert found.operators == () and found.share("swept", "sum_ns") is None


def test_what_is_predicted_depends_on_the_architecture() -> None:
    assert "GroupedMatmul" in predicted_types("2201") and "GroupedMatmul" not in predicted_types("3510")
    assert {"DynamicQuant", "GroupedMatmul", "MatMulV2"} <= swept_types()
