"""The ledger: what is added, what is unknown, and break-even as intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tilewatch.data_contracts import schema
from tilewatch.tasks.analyse.savings.break_even import intervals, sentence
from tilewatch.tasks.analyse.savings.ledger import ledger_table
from tilewatch.tasks.analyse.tables import RunTables, join

AXIS = [1, 16, 64, 128]
BF16 = [20_000.0, 21_000.0, 26_000.0, 40_000.0]
INT8 = [15_000.0, 15_500.0, 17_000.0, 22_000.0]
QUANT = [3_000.0, 3_200.0, 4_000.0, 6_000.0]
LINEAR = [21_000.0, 21_100.0, 23_000.0, 30_000.0]


def arm(make_run: Any, name: str, operator: str, ideal: list[float], **more: Any) -> RunTables:
    processes = more.pop("processes", 6)
    noise = np.random.default_rng(len(name)).normal(0, 0.002, (len(ideal), processes))
    point = {"operator": operator, "dtype_w": "bfloat16" if operator == "matmul" else "int8", **more}
    experiment = "dynamic_quant" if operator in ("dynamic_quant", "tuple_input") else "quant_matmul"
    return make_run(
        np.array(ideal)[:, None] * np.exp(noise), axis_values=AXIS[: len(ideal)], arm=name,
        experiment=experiment, point=point,
    )  # fmt: skip


def joined(*parts: RunTables) -> RunTables:
    both = join(parts)
    return RunTables(both.runs.slice(0, 1), both.captures, both.points, both.samples, both.alignments)


def dense(make_run: Any, **more: Any) -> list[RunTables]:
    return [
        arm(make_run, "bf16", "matmul", BF16, **more),
        arm(make_run, "tuple_input", "quant_matmul", INT8, **more),
        arm(make_run, "standalone", "quant_linear", LINEAR, **more),
        arm(make_run, "standalone", "dynamic_quant", QUANT, **more),
    ]


def rows(table: pa.Table, kind: str) -> list[dict[str, Any]]:
    return [row for row in table.to_pylist() if row["input_kind"] == kind]


def test_a_standalone_linear_is_priced_with_its_parts_enumerated(make_run: Any) -> None:
    table = ledger_table(joined(*dense(make_run)))
    assert table.schema.equals(schema("ledger"))
    row = rows(table, "standalone")[3]
    assert (row["linear"], row["m"], row["k"], row["n"]) == ("wq_a", 128, 4096, 1024)
    assert row["t_bf16_ns"] == pytest.approx(40_000, rel=0.01)
    assert row["t_dynamic_quant_ns"] == pytest.approx(6_000, rel=0.01)
    (part,) = row["t_other_parts"]
    assert part == ("launch_and_dispatch", row["t_other_ns"])
    assert row["t_other_ns"] == pytest.approx(2_000, rel=0.1)
    assert row["net_ns"] == pytest.approx(10_000, rel=0.03)
    assert row["net_low_ns"] < row["net_ns"] < row["net_high_ns"]


def test_break_even_is_a_set_of_intervals_with_a_band_of_no_difference(make_run: Any) -> None:
    found = rows(ledger_table(joined(*dense(make_run))), "standalone")
    assert [row["outcome"] for row in found] == ["bf16_wins", "no_difference", "int8_wins", "int8_wins"]
    assert {row["break_even"] for row in found} == {"BF16 wins M 1; no difference M 16; INT8 wins M 64–128"}


def test_without_the_whole_linear_the_rest_is_unknown_and_there_is_no_break_even(make_run: Any) -> None:
    bf16, int8, _, quant = dense(make_run)
    row = rows(ledger_table(joined(bf16, int8, quant)), "standalone")[0]
    assert (row["t_other_ns"], row["outcome"], row["break_even"]) == (None, "unknown", None)
    assert row["t_other_reason"] == "the whole linear was not measured"


def test_without_dynamic_quant_at_this_point_the_rest_is_unknown(make_run: Any) -> None:
    bf16, int8, linear, _ = dense(make_run)
    row = rows(ledger_table(joined(bf16, int8, linear)), "standalone")[0]
    assert row["t_other_reason"] == "DynamicQuant was not measured at this M and K"


def test_a_single_process_has_no_band_and_so_no_outcome(make_run: Any) -> None:
    parts = [
        arm(make_run, "bf16", "matmul", BF16, processes=1),
        arm(make_run, "tuple_input", "quant_matmul", INT8, processes=1),
        arm(make_run, "standalone", "quant_linear", LINEAR, processes=1),
        arm(make_run, "standalone", "dynamic_quant", QUANT, processes=1),
    ]
    assert {row["outcome"] for row in rows(ledger_table(joined(*parts)), "standalone")} == {"unknown"}


@pytest.mark.parametrize(
    ("processes", "other_ns", "said"),
    [
        (
            6,
            -3_000,
            "negative, but within its interval (DynamicQuant alone 5.0 to 17.0 µs between processes)",
        ),
        (1, None, "negative, and a single process cannot tell whether beyond chance"),
    ],
)
def test_a_negative_rest_is_never_a_bare_number(
    make_run: Any, processes: int, other_ns: float | None, said: str
) -> None:
    bf16, int8, linear, _ = dense(make_run, processes=processes)
    two_speeds = np.where(np.arange(processes) % 2, 17_000.0, 5_000.0) if processes > 1 else 11_000.0
    quant = make_run(
        np.broadcast_to(two_speeds, (4, processes)), axis_values=AXIS, arm="standalone",
        experiment="dynamic_quant", point={"operator": "dynamic_quant"},
    )  # fmt: skip
    row = rows(ledger_table(joined(bf16, int8, linear, quant)), "standalone")[3]
    assert row["t_dynamic_quant_ns"] == pytest.approx(11_000)
    assert row["t_other_ns"] == (None if other_ns is None else pytest.approx(other_ns, abs=200))
    assert row["t_other_reason"] == said


def test_a_rest_that_is_negative_beyond_chance_names_the_range_of_dynamic_quant(make_run: Any) -> None:
    bf16, int8, linear, _ = dense(make_run)
    quant = arm(make_run, "standalone", "dynamic_quant", [11_000.0] * 4)
    row = rows(ledger_table(joined(bf16, int8, linear, quant)), "standalone")[3]
    assert row["t_other_ns"] == pytest.approx(-3_000, abs=200)
    assert row["t_other_reason"].startswith("negative beyond its interval: the two kernels take longer alone")
    assert row["t_other_reason"].endswith("µs between processes)")
    assert (row["outcome"], row["net_ns"]) == ("int8_wins", pytest.approx(10_000, rel=0.03))


@pytest.mark.parametrize(("kernels", "time"), [(0, 0.0), (5, None), (None, None)])
def test_tuple_input_has_no_dynamic_quant_only_where_zero_kernels_were_observed(
    make_run: Any, align: Any, kernels: int | None, time: float | None
) -> None:
    bf16, int8, linear, quant = dense(make_run)
    proved = align(int8, {"dynamic_quant_kernel_count": kernels})
    row = rows(ledger_table(joined(bf16, proved, linear, quant)), "tuple_input")[0]
    assert row["t_dynamic_quant_ns"] == time
    assert (row["t_other_ns"], row["outcome"], row["break_even"]) == (None, "unknown", None)
    assert row["t_other_reason"].startswith("tuple input: ")


def test_grouped_matmul_has_rows_of_its_own_by_regime_and_shape(make_run: Any) -> None:
    def grouped(name: str, dtype: str, ideal: list[float]) -> RunTables:
        point = {
            "operator": "grouped_matmul", "dtype_w": dtype, "linear": "w13", "m_e": AXIS, "axis": "m_e",
            "allocation_regime": "padded", "group_shape": "uniform",
        }  # fmt: skip
        values = np.tile(np.array(ideal)[:, None], (1, 6))
        return make_run(values, axis_values=AXIS, arm=name, experiment="grouped_matmul", point=point)

    table = ledger_table(joined(grouped("bf16", "bfloat16", BF16), grouped("int8", "int8", INT8)))
    (row, *_) = table.to_pylist()
    assert table.num_rows == 4
    assert (row["linear"], row["allocation_regime"], row["group_shape"]) == ("w13", "padded", "uniform")
    assert (row["t_bf16_ns"], row["t_int8_ns"], row["outcome"]) == (20_000, 15_000, "unknown")


def test_the_cliffs_that_bound_an_interval_are_named(make_run: Any) -> None:
    tables = joined(*dense(make_run))
    step = {
        "run_id": "run1", "experiment": "quant_matmul", "arm": "bf16", "before": 16, "after": 64,
        "class": "step", "curve": "matmul wq_a K4096 N1024 FRACTAL_NZ eager",
    }  # fmt: skip
    found = rows(ledger_table(tables, cliffs=pa.Table.from_pylist([step])), "standalone")
    assert "no difference M 16 (cliff 16→64 of bf16); INT8 wins" in found[0]["break_even"]


def test_a_ledger_does_not_depend_on_row_order(make_run: Any, shuffle: Any) -> None:
    tables = joined(*dense(make_run))
    assert ledger_table(tables).equals(ledger_table(shuffle(tables, 5)))


def test_several_intervals_are_kept_apart() -> None:
    outcomes = ["int8_wins", "bf16_wins", "bf16_wins", "int8_wins", "unknown"]
    assert [(i.first, i.last) for i in intervals([8, 9, 12, 16, 32], outcomes)] == [
        (8, 8),
        (9, 12),
        (16, 16),
        (32, 32),
    ]
    assert sentence([8, 9], ["unknown", "unknown"]) is None
