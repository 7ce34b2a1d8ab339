"""Every golden row: what CANN's host code computed, or its own unit tests assert, is predicted."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tilewatch.tasks.predict.golden.check import FileResult, check_file
from tilewatch.tasks.predict.golden.report import report_rows

PRODUCED = (
    "golden_dq_910_93.csv.gz", "golden_dq_arch35.csv.gz", "golden_qbmm_910_93.csv.gz",
    "golden_qbmm_arch35.csv.gz", "segments.csv", "segments_dq.csv", "derived_gmm_dsv4.jsonl.gz",
)  # fmt: skip
ASSERTED = ("ut_dynamic_quant.jsonl.gz", "ut_qbmm_v3.jsonl.gz", "golden_gmm_ut.jsonl.gz")


checked = cache(check_file)


@pytest.fixture(params=PRODUCED)
def produced(request: pytest.FixtureRequest, shared: Path) -> FileResult:
    return checked(shared / "vectors" / "tiling" / request.param)


@pytest.fixture(params=ASSERTED)
def asserted(request: pytest.FixtureRequest, shared: Path) -> FileResult:
    return checked(shared / "vectors" / "tiling" / request.param)


def show(result: FileResult) -> None:
    columns, rows = report_rows(result)
    print(f"\n{result.summary}", *["  ".join(map(str, row)) for row in (columns, *rows)], sep="\n")


def test_no_produced_row_disagrees_in_any_field(produced: FileResult) -> None:
    show(produced)
    assert produced.first_disagreements(3) == []


def test_only_rows_of_the_basic_path_are_left_out(produced: FileResult) -> None:
    assert all(why.startswith("the Basic path, as its own key says") for why in produced.uncovered.values())
    assert len(produced.covered) + len(produced.uncovered) == produced.rows
    assert produced.covered


def test_no_asserted_row_disagrees_in_any_field(asserted: FileResult) -> None:
    show(asserted)
    assert asserted.disagreements == []
    assert len(asserted.covered) + len(asserted.uncovered) == asserted.rows


def test_every_w8a8_unit_test_outside_the_basic_path_is_covered_but_three(shared: Path) -> None:
    result = checked(shared / "vectors" / "tiling" / "ut_qbmm_v3.jsonl.gz")
    why = {line: text for line, text in result.uncovered.items() if not text.startswith("not W8A8")}
    basic = [line for line, text in why.items() if text.startswith("the Basic path, as its own key says")]
    assert (len(result.covered), len(basic)) == (22, 16)
    assert {line: text for line, text in why.items() if line not in basic} == {
        162: "unknown, and by its own key 24 not the Basic path: "
        "Basic template: M above 256 and no side held whole in L1 pays",
        167: "the test injects the closed library's answer",
        424: "2 weight matrices",
    }


def test_every_field_of_a_covered_unit_test_is_predicted(shared: Path) -> None:
    assert checked(shared / "vectors" / "tiling" / "ut_qbmm_v3.jsonl.gz").unpredicted == []


def test_calls_that_the_host_fails_are_refused(shared: Path) -> None:
    result = checked(shared / "vectors" / "tiling" / "golden_gmm_ut.jsonl.gz")
    assert {9, 15, 16, 18} <= result.covered
    assert result.compared["refused"] == 4
    assert set(result.reasons) == {"not INT8 on both sides"}


def test_grouped_matmul_fields_without_a_golden_value_of_cann_stand_apart(shared: Path) -> None:
    result = checked(shared / "vectors" / "tiling" / "derived_gmm_dsv4.jsonl.gz")
    _, rows = report_rows(result)
    verified = {row[0] for row in rows if row[1] == "yes"}
    assert verified == {"tiling_key", "block_dim", "workspace_bytes", "refused"}
    assert {"base_m", "single_n", "stepKa"} <= result.unverified
