"""The checker itself: it finds what is wrong and says where."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.predict.golden.check import check_file

SEGMENTS = (
    "op,soc,cann,vector_cores,K,M_from,M_to,block_dim,tiling_key\n"
    "DynamicQuant,Ascend910_93,master,48,4096,13,16,4,100\n"
    "DynamicQuant,Ascend910_93,v8.5.0,48,4096,16,16,{cores},2\n"
)


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_rows_that_agree_leave_nothing_to_report(tmp_path: Path, name: str) -> None:
    result = check_file(write(tmp_path / name, SEGMENTS.format(cores=16)))
    assert (result.rows, len(result.covered), result.disagreeing_rows) == (2, 2, 0)
    assert result.compared["block_dim"] == 5


def test_a_wrong_value_is_found_with_line_field_and_both_values(tmp_path: Path) -> None:
    result = check_file(write(tmp_path / "rows.csv", SEGMENTS.format(cores=17)))
    assert result.disagreeing_rows == 1
    (line,) = result.first_disagreements(5)
    assert line.startswith("line 3: block_dim: expected 17, predicted 16") and "CANN 8.5.0" in line


def test_json_lines_are_read_like_csv(tmp_path: Path) -> None:
    row = {
        "op": "QuantBatchMatmulV3", "soc": "Ascend910_93", "npu_arch": 2201,
        "cann_source": "master e5c3fa932",
        "platform": {"cube_core_cnt": 24, "vector_core_cnt": 48}, "M": 95, "K": 4096, "N": 1024,
        "weight_format": "NZ", "transpose_x2": False,
        "predicted": {"tiling_key": "24", "block_dim": 8, "tiling_data": {"matmulTiling": {"baseM": 96}}},
    }  # fmt: skip
    result = check_file(write(tmp_path / "rows.jsonl.gz", json.dumps(row) + "\n"))
    assert result.compared == {"tiling_key": 1, "block_dim": 1, "base_m": 1}
    assert result.disagreements == []


def test_a_file_that_is_no_golden_file_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(PredictError, match=r"rows\.csv:2: not a golden row"):
        check_file(write(tmp_path / "rows.csv", "a,b\n1,2\n"))
    with pytest.raises(PredictError, match=r"rows\.jsonl:1: not JSON"):
        check_file(write(tmp_path / "rows.jsonl", "{\n"))
    with pytest.raises(PredictError, match="cannot be read"):
        check_file(tmp_path / "missing.csv")


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(SEGMENTS.format(cores=16).encode())
    (tmp_path / "rows.csv.gz").write_bytes(whole[:40])
    with pytest.raises(PredictError, match="cannot be read"):
        check_file(tmp_path / "rows.csv.gz")
