"""Every golden row: what CANN's host code computed, or its own unit tests assert, is predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.predict.golden_check import FileResult, check_file
from tasks.predict.golden_report import report_rows

PRODUCED = (
    "golden_dq_910_93.csv.gz", "golden_dq_arch35.csv.gz", "golden_qbmm_910_93.csv.gz",
    "golden_qbmm_arch35.csv.gz", "segments.csv", "segments_dq.csv", "derived_gmm_dsv4.jsonl.gz",
)  # fmt: skip
ASSERTED = ("ut_dynamic_quant.jsonl.gz", "ut_qbmm_v3.jsonl.gz", "golden_gmm_ut.jsonl.gz")


@pytest.fixture(scope="module", params=PRODUCED)
def produced(request: pytest.FixtureRequest, shared: Path) -> FileResult:
    return check_file(shared / "vectors" / "tiling" / request.param)


def show(result: FileResult) -> None:
    columns, rows = report_rows(result)
    print(f"\n{result.summary}", *["  ".join(map(str, row)) for row in (columns, *rows)], sep="\n")


def test_no_produced_row_disagrees_in_any_field(produced: FileResult) -> None:
    show(produced)
    assert produced.first_disagreements(3) == []


def test_only_rows_of_the_basic_path_are_left_out(produced: FileResult) -> None:
    basic = [why for why in produced.reasons if why.startswith("unknown (basic)")]
    assert list(produced.reasons) == basic
    assert len(produced.covered) + produced.reasons.total() == produced.rows
    assert produced.covered


@pytest.mark.parametrize("name", ASSERTED)
def test_no_asserted_row_disagrees_in_any_field(name: str, shared: Path) -> None:
    result = check_file(shared / "vectors" / "tiling" / name)
    show(result)
    assert result.disagreements == []


def test_unit_tests_within_w8a8_are_covered_and_the_rest_is_counted(shared: Path) -> None:
    results = {name: check_file(shared / "vectors" / "tiling" / name) for name in ASSERTED}
    assert {name: len(result.covered) for name, result in results.items()} == {
        "ut_dynamic_quant.jsonl.gz": 14,
        "ut_qbmm_v3.jsonl.gz": 22,
        "golden_gmm_ut.jsonl.gz": 31,
    }
    for result in results.values():
        assert len(result.covered) + result.reasons.total() == result.rows


def test_grouped_matmul_fields_without_a_golden_value_of_cann_stand_apart(shared: Path) -> None:
    result = check_file(shared / "vectors" / "tiling" / "derived_gmm_dsv4.jsonl.gz")
    _, rows = report_rows(result)
    verified = {row[0] for row in rows if row[1] == "yes"}
    assert verified == {"tiling_key", "block_dim", "workspace_bytes", "refused"}
    assert {"base_m", "single_n", "stepKa"} <= result.unverified
