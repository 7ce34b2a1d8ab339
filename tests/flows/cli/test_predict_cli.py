"""`tilewatch predict` as a user types it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tilewatch.flows.cli.predict import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


WQ_A = (
    "quant-matmul",
    "--k",
    "4096",
    "--n",
    "1024",
    "--format",
    "nz",
    "--soc",
    "Ascend910_9391",
    "--cann",
    "9.1.0",
)


def test_quant_matmul_prints_intervals_and_the_rules_that_made_them() -> None:
    result = run(*WQ_A, "--m", "1:256")
    assert result.exit_code == 0
    assert "tbe_optimised" in result.output and "tuning bank" in result.output


def test_json_lists_every_interval_with_its_record() -> None:
    rows = json.loads(run(*WQ_A, "--m", "90:100", "--json").output)
    assert [(row["m_from"], row["m_to"], row["block_dim"], row["tiling_key"]) for row in rows] == [
        (90, 94, 16, "24"), (95, 96, 8, "24"), (97, 100, 16, "24")
    ]  # fmt: skip


def test_csv_has_a_header_and_one_line_an_interval() -> None:
    rows = list(csv.DictReader(io.StringIO(run(*WQ_A, "--m", "90:100", "--csv").output)))
    assert [row["block_dim"] for row in rows] == ["16", "8", "16"]


def test_dynamic_quant_and_grouped_matmul_answer_too() -> None:
    quant = json.loads(run("dynamic-quant", "--m", "16", "--k", "4096", "--json").output)
    assert (quant[0]["block_dim"], quant[0]["tiling_key"]) == (4, "100")
    grouped = run(
        "grouped-matmul", "--k", "4096", "--n", "4096", "--experts", "16", "--m-e", "1:256", "--json"
    )
    assert [(row["m_e_from"], row["rounds"]) for row in json.loads(grouped.output)] == [(1, 11), (129, 22)]


def test_a_weight_shape_stands_for_n() -> None:
    by_n = run("quant-matmul", "--m", "16", "--k", "4096", "--n", "1024", "--json").output
    for shape, more in (("4096,1024", ()), ("4096,1024", ("--n", "1024"))):
        assert (
            run("quant-matmul", "--m", "16", "--k", "4096", "--weight-shape", shape, *more, "--json").output
            == by_n
        )
    grouped = run(
        "grouped-matmul",
        "--k",
        "2048",
        "--experts",
        "16",
        "--weight-shape",
        "16,4096,2048",
        "--transposed",
        "--json",
    )
    assert json.loads(grouped.output)[0]["base_n"] == 256


def test_what_never_changes_stands_once_below_the_table() -> None:
    printed = run(*WQ_A, "--m", "90:100").output
    assert "everywhere: n_cnt 8, stream_k False, aiv_aic_ratio 1:1" in printed


def test_an_upgrade_that_changes_nothing_says_so() -> None:
    printed = run("diff", "--cann", "9.0.0", "--to", "9.1.0", "--experiment", "A").output
    assert "0 changes: every predicted tiling stays as it is" in printed


def test_diff_shows_dynamic_quant_falling_from_16_cores_to_4() -> None:
    rows = json.loads(run("diff", "--cann", "8.5.0", "--to", "9.1.0", "--experiment", "B", "--json").output)
    wanted = {
        "operator": "DynamicQuant",
        "m": 16,
        "k": 4096,
        "n": None,
        "field": "block_dim",
        "before": 16,
        "after": 4,
    }
    assert any(wanted.items() <= row.items() for row in rows)
    assert rows[0]["field"] == "block_dim" and rows[0]["after"] < rows[0]["before"]


def test_diff_between_9_0_and_9_1_is_empty_for_every_experiment() -> None:
    assert json.loads(run("diff", "--cann", "9.0.0", "--to", "9.1.0", "--json").output) == []


def test_diff_takes_other_axis_values() -> None:
    rows = json.loads(
        run("diff", "--to", "9.0.0", "--cann", "8.5.0", "--experiment", "a", "--m", "3:4", "--json").output
    )
    assert {row["m"] for row in rows} == {3, 4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("quant-matmul", "--m", "0", "--k", "4096", "--n", "1024"), "m: 0: rows must be at least 1"),
        (("quant-matmul", "--m", "1", "--k", "4090", "--n", "1024"), "K % 16 == 0 and N % 32 == 0"),
        (("quant-matmul", "--m", "9:1", "--k", "4096", "--n", "1024"), "the range ends before it begins"),
        (("quant-matmul", "--m", "x", "--k", "4096", "--n", "1024"), "must be a number or a range"),
        (("quant-matmul", "--m", "1", "--k", "4096", "--n", "1024", "--format", "nh"), "must be nz or nd"),
        (
            ("quant-matmul", "--m", "1", "--k", "4096", "--weight-shape", "1024,4096"),
            "k: 4096: K of x must be",
        ),
        (("quant-matmul", "--m", "1", "--k", "4096"), "give --n, or the weight as --weight-shape"),
        (
            ("quant-matmul", "--m", "1", "--k", "4096", "--n", "512", "--bias-dtype", "int4"),
            "bias_dtype: 'int4' is not covered; known: none, int32",
        ),
        (("dynamic-quant", "--m", "1", "--k", "4096", "--x-dtype", "int8"), "known: bfloat16, float16"),
        (("dynamic-quant", "--m", "1", "--k", "4096", "--soc", "Ascend1"), "known: Ascend910_9381"),
        (("dynamic-quant", "--m", "1", "--k", "4096", "--cann", "1.0"), "known: 8.5.0"),
        (("diff", "--to", "9.1.0", "--experiment", "Q"), "no operator experiment Q; known: A"),
    ],
)
def test_a_wrong_request_exits_2_and_says_why(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_check_exits_0_where_all_rows_agree_and_1_where_one_does_not(tmp_path: Path) -> None:
    text = (
        "op,soc,cann,vector_cores,K,M_from,M_to,block_dim,tiling_key\n"
        "DynamicQuant,Ascend910_93,master,48,4096,13,16,{},100\n"
    )
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text(text.format(4))
    bad.write_text(text.format(5))
    agreed, differed = run("check", str(good)), run("check", str(good), str(bad))
    assert agreed.exit_code == 0 and "1 rows, 1 covered, 1 agree" in agreed.output
    assert differed.exit_code == 1
    assert "line 2: block_dim: expected 5, predicted 4" in differed.output
    printed = run("check", "--json", str(good), str(bad))
    agree, differ = json.loads(printed.stdout)
    assert printed.exit_code == 1 and (agree["agree"], agree["disagreements"]) == (1, [])
    assert (differ["rows"], differ["covered"], differ["agree"]) == (1, 1, 0)
    (first, *_) = differ["disagreements"]
    assert (first["line"], first["field"], first["expected"], first["predicted"]) == (2, "block_dim", 5, 4)
    assert {
        "field": "block_dim",
        "verified": "yes",
        "compared": 4,
        "agree": 0,
        "differ": 4,
        "not_predicted": 0,
    } in differ["fields"]


def test_check_prints_every_row_left_out_with_its_reason(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(
        "op,soc,cann,cores,l2_bytes,weight,transpose_x2,K,N,M_from,M_to,block_dim,tiling_key,stepKa_or_kAL1,stepKb_or_kBL1,path\n"
        "QuantBatchMatmulV3,Ascend910_93,>=9.1,22,201326592,NZ,0,4096,1024,1,16,16,20,8,8,basic\n"
    )
    result = run("check", str(rows), "--left-out")
    assert result.exit_code == 0 and "1 rows, 0 covered" in result.output
    assert "line 2: left out: the Basic path, as its own key says" in result.output


def test_check_of_a_missing_file_exits_2(tmp_path: Path) -> None:
    result = run("check", str(tmp_path / "none.csv"))
    assert result.exit_code == 2 and "cannot be read" in result.output


def test_operating_points_prints_the_axes_of_a_deployment() -> None:
    result = run("operating-points")
    assert result.exit_code == 0
    assert "10 requests a rank; M of the dense linears: --axis 7,14,28,42,56,70" in result.output
    assert "26.25 in the mean, 5 to 95 %: --axis 18,26,35" in result.output
    rows = json.loads(run("operating-points", "--json").output)
    assert max(rows, key=lambda row: row["share_of_experts"])["m_e"] == 26


def test_operating_points_refuses_a_batch_that_no_graph_holds() -> None:
    result = run("operating-points", "--graph-sizes", "1,2")
    assert result.exit_code == 2
