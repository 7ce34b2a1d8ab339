"""Explanations: the tiling fields and unit counts on both sides of a cliff, in words with numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tilewatch.data_contracts import schema
from tilewatch.tasks.analyse.cliffs.explain import cliff_table

AXIS = [96, 112, 127, 128, 129, 144, 160]


@pytest.fixture
def stepped(make_run: Any) -> Any:
    """A grouped matmul of 16 experts over N = 4096 whose latency rises by 1.78 from 128 to 129."""
    draw = np.random.default_rng(1)
    ideal = np.array([20_000 * (1.78 if m > 128 else 1.0) for m in AXIS])
    values = ideal[:, None] * np.exp(0.003 * draw.normal(size=(len(AXIS), 6)))
    point = {
        "axis": "m_e", "m_e": AXIS, "max_m_e": AXIS, "n": 4096, "operator": "grouped_matmul",
        "group_list": pa.array([[m] * 16 for m in AXIS], pa.list_(pa.int64())),
    }  # fmt: skip
    return make_run(values, axis_values=AXIS, experiment="grouped_matmul", arm="int8", point=point)


def test_a_crossed_unit_count_explains_and_the_sentence_has_the_numbers(stepped: Any, align: Any) -> None:
    tables = align(stepped, {"tiling_key": "0", "base_m": 128, "base_n": 256, "used_core_num": 64})
    table = cliff_table(tables)
    assert table.schema.equals(schema("cliffs"))
    (row,) = table.to_pylist()
    assert (row["class"], row["explanation"], row["explanation_evidence"]) == (
        "step",
        "explained",
        "observed",
    )
    assert row["sentence"] == (
        f"M_e 128→129: ×{row['ratio']:.2f}; base_m stays 128, blocks per expert 1→2, "
        "blocks 256→512, rounds 4→8"
    )
    assert row["ratio"] == pytest.approx(1.78, rel=0.02)
    assert row["changed_fields"] == ["blocks per expert: 1 -> 2", "blocks: 256 -> 512", "rounds: 4 -> 8"]


def test_a_changed_tiling_field_explains(stepped: Any, align: Any) -> None:
    keys = ["10" if m <= 128 else "11" for m in AXIS]
    (row,) = cliff_table(align(stepped, {"tiling_key": keys, "block_dim": 24})).to_pylist()
    assert row["explanation"] == "explained"
    assert row["sentence"].endswith("; tiling_key 10→11")


def test_a_step_of_a_linear_is_explained_by_the_kernel_before_its_matmul_too(
    make_run: Any, make_table: Any, align: Any
) -> None:
    axis = [46, 47, 48, 49, 50, 64]
    ideal = np.array([20_000 * (1.3 if m > 48 else 1.0) for m in axis])
    values = ideal[:, None] * np.exp(0.003 * np.random.default_rng(3).normal(size=(6, 6)))
    linear = make_run(values, axis_values=axis, point={"operator": "quant_linear"})
    tables = align(linear, {"tiling_key": "24", "base_m": 64, "kernel_op_type": "QuantBatchMatmulV3"})
    cores = [min(m, 48) for m in axis]
    quant = make_table(
        "tilings", 6,
        {"run_id": "run1", "experiment": "quant_matmul", "arm": "standalone", "op_type": "DynamicQuant",
         "point_id": tables.points["point_id"].combine_chunks(), "tiling_key": "10", "block_dim": cores,
         "used_core_num": cores},
    )  # fmt: skip
    (alone,) = cliff_table(tables).to_pylist()
    assert alone["explanation"] == "unexplained"
    (row,) = cliff_table(tables, tilings=quant).to_pylist()
    assert (row["before"], row["explanation"]) == (48, "explained")
    assert row["sentence"].endswith("; DynamicQuant rows per core 1→2")
    assert row["changed_fields"] == ["DynamicQuant rows per core: 1 -> 2"]


def test_no_cause_is_named_where_the_record_stays_the_same(stepped: Any, align: Any) -> None:
    (row,) = cliff_table(align(stepped, {"tiling_key": "10", "base_m": 256, "block_dim": 24})).to_pylist()
    assert (row["explanation"], row["changed_fields"]) == ("unexplained", [])
    assert row["sentence"].endswith(
        "the tiling record is the same on both sides (tiling_key 10, base_m 256, block_dim 24)"
    )


def test_a_field_that_moves_with_the_axis_is_no_cause(stepped: Any, align: Any) -> None:
    kind = schema("alignments").field("fields").type
    fields = pa.array([[("m", str(m)), ("workspace", "1")] for m in AXIS], kind)
    tables = align(stepped, {"tiling_key": "10", "block_dim": AXIS, "fields": fields})
    (row,) = cliff_table(tables).to_pylist()
    assert (row["explanation"], row["changed_fields"]) == ("unexplained", [])


def test_an_operators_own_field_that_changes_only_here_is_a_cause(stepped: Any, align: Any) -> None:
    kind = schema("alignments").field("fields").type
    fields = pa.array([[("m", str(m)), ("ubTemplate", "A" if m <= 128 else "B")] for m in AXIS], kind)
    (row,) = cliff_table(align(stepped, {"tiling_key": "10", "fields": fields})).to_pylist()
    assert row["changed_fields"] == ["ubTemplate: A -> B"]


def test_a_tiling_change_without_a_step_is_silent(make_run: Any, align: Any) -> None:
    values = 20_000 * np.exp(0.003 * np.random.default_rng(2).normal(size=(len(AXIS), 6)))
    flat = make_run(values, axis_values=AXIS)
    keys = ["10" if m <= 127 else "11" for m in AXIS]
    (row,) = cliff_table(align(flat, {"tiling_key": keys})).to_pylist()
    assert (row["before"], row["after"], row["class"], row["explanation"]) == (127, 128, "none", "silent")
    assert row["sentence"].endswith("; tiling_key 10→11; no step in latency")


def test_the_cpu_agent_has_no_tiling_record_and_prediction_fills_nothing_in(stepped: Any, align: Any) -> None:
    cpu = align(stepped, {"status": "no_tiling", "reason": "cpu reference kernels have no tiling"})
    place = cpu.runs.schema.get_field_index("agent")
    runs = cpu.runs.set_column(place, cpu.runs.schema.field("agent"), pa.array(["cpu"]))
    cpu = type(cpu)(runs, cpu.captures, cpu.points, cpu.samples, cpu.alignments)
    (row,) = cliff_table(cpu, predictions=_predictions(stepped)).to_pylist()
    assert (row["explanation"], row["explanation_evidence"]) == ("unexplained", "none")
    assert row["sentence"].endswith("; no tiling record exists for the cpu agent")


def test_an_explanation_from_prediction_alone_says_so(stepped: Any, align: Any) -> None:
    unaligned = align(stepped, {"status": "unaligned", "reason": "no tiling process ran"})
    (row,) = cliff_table(unaligned).to_pylist()
    assert row["sentence"].endswith("; unaligned: no tiling process ran")
    (row,) = cliff_table(unaligned, predictions=_predictions(stepped)).to_pylist()
    assert (row["explanation"], row["explanation_evidence"]) == ("explained", "predicted")
    assert row["sentence"].endswith("(by prediction alone; no tiling record was observed)")


def test_an_observed_record_is_never_mixed_with_prediction(stepped: Any, align: Any) -> None:
    tables = align(stepped, {"tiling_key": "10", "base_m": 256})
    (row,) = cliff_table(tables, predictions=_predictions(stepped)).to_pylist()
    assert (row["explanation"], row["explanation_evidence"]) == ("unexplained", "observed")


def _predictions(tables: Any) -> pa.Table:
    rows = tables.points.select(["experiment", "arm", "point_id"])
    return rows.append_column("base_m", pa.array([128] * rows.num_rows))
