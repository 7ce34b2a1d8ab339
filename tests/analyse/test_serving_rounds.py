"""Results of any serving client: rounds of one configuration are replicates, and judge two builds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tilewatch.flows.cli.app import app
from tilewatch.flows.steps.rounds import rounds_at
from tilewatch.tasks.analyse.comparison.serving_rounds import RoundsDifferError, compare_rounds

NAMES = ("old", "new")


def written(folder: Path, rounds: list[dict[str, Any]], indent: int | None = None) -> pa.Table:
    folder.mkdir()
    for number, one in enumerate(rounds):
        (folder / f"round{number}.json").write_text(json.dumps(one, indent=indent))
    return rounds_at(folder)


def vllm(tpot: float, **more: Any) -> dict[str, Any]:
    told = {"backend": "openai", "model_id": "qwen", "max_concurrency": 16, "num_prompts": 200}
    counted = {
        "completed": 200,
        "duration": 61.5,
        "total_input_tokens": 204_800,
        "total_output_tokens": 25_600,
    }
    return told | counted | {"mean_ttft_ms": 400.0, "mean_tpot_ms": tpot, "output_throughput": 416.2} | more


def test_five_rounds_a_side_show_the_slower_tpot_and_nothing_else(shared: Path) -> None:
    case = shared / "cases" / "vllm_rounds"
    done = compare_rounds(rounds_at(case / "v0.9.1"), rounds_at(case / "v0.11.0"), NAMES)
    found = {row["metric"]: row for row in done.rows.to_pylist()}
    tpot = found["TPOT mean, ms"]
    assert (tpot["verdict"], round(tpot["ratio"], 3)) == ("SLOWER", 1.12)
    assert (tpot["base_rounds"], tpot["candidate_rounds"]) == (5, 5)
    assert tpot["ratio_low"] < 1.12 < tpot["ratio_high"]
    slower = {name for name, row in found.items() if row["verdict"] != "SAME"}
    assert slower == {"TPOT mean, ms", "TPOT median, ms", "TPOT p99, ms"}
    assert "one sitting each" in done.sentence


def test_the_command_compares_results_where_they_lie(shared: Path) -> None:
    case = shared / "cases" / "vllm_rounds"
    sides = [str(case / "v0.9.1"), str(case / "v0.11.0")]
    done = CliRunner().invoke(app, ["compare", *sides, "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert [row["verdict"] for row in rows if row["metric"] == "TPOT mean, ms"] == ["SLOWER"]
    assert CliRunner().invoke(app, ["compare", *sides, "--fail-on", "slower"]).exit_code == 1


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("max_concurrency", 32, "concurrency: 16 against 32"),
        ("model_id", "deepseek", "model: qwen against deepseek"),
        ("dataset_name", "sharegpt", "dataset: not said against sharegpt"),
        ("total_input_tokens", 409_600, "input length: 1024.0 against 2048.0"),
    ],
)
def test_a_configuration_that_differs_is_refused_by_name(
    tmp_path: Path, key: str, value: Any, named: str
) -> None:
    base = written(tmp_path / "a", [vllm(35.0 + n / 10) for n in range(5)])
    other = written(tmp_path / "b", [vllm(35.0 + n / 10, **{key: value}) for n in range(5)])
    with pytest.raises(RoundsDifferError, match=named):
        compare_rounds(base, other, NAMES)


def test_prompts_drawn_anew_are_one_configuration_and_few_rounds_are_undecided(tmp_path: Path) -> None:
    base = written(
        tmp_path / "a", [vllm(35.0 + n / 10, total_input_tokens=204_800 + 9 * n) for n in range(3)]
    )
    other = written(tmp_path / "b", [vllm(40.0 + n / 10, total_input_tokens=204_000) for n in range(3)])
    rows = compare_rounds(base, other, NAMES).rows.to_pylist()
    (tpot,) = [row for row in rows if row["metric"] == "TPOT mean, ms"]
    assert (tpot["verdict"], tpot["base_rounds"]) == ("UNDECIDED", 3)
    assert "round" in tpot["verdict_reason"] and "launch" not in tpot["verdict_reason"]


def test_more_tokens_a_second_are_faster(tmp_path: Path) -> None:
    base = written(tmp_path / "a", [vllm(35.0, output_throughput=400.0 + n) for n in range(5)])
    other = written(tmp_path / "b", [vllm(35.0, output_throughput=500.0 + n) for n in range(5)])
    rows = compare_rounds(base, other, NAMES).rows.to_pylist()
    assert [row["verdict"] for row in rows if row["metric"] == "output tokens/s"] == ["FASTER"]


def test_a_result_over_several_lines_is_one_round(tmp_path: Path) -> None:
    table = written(tmp_path / "a", [vllm(35.0)], indent=2)
    (row,) = table.to_pylist()
    assert dict(row["metrics"])["mean_tpot_ms"] == 35.0
    assert dict(row["configuration"])["input length"] == "1024.0"


def test_a_summary_of_evalscope_has_the_names_of_the_others_in_milliseconds(tmp_path: Path) -> None:
    summary = {
        "Time taken for tests (s)": 61.5,
        "Number of concurrency": 16,
        "Total requests": 200,
        "Succeed requests": 200,
        "Failed requests": 0,
        "Output token throughput (tok/s)": 416.2,
        "Average time to first token (s)": 0.4,
        "Average time per output token (s)": 0.035,
        "Average input tokens per request": 1024.0,
    }
    (row,) = written(tmp_path / "a", [summary], indent=4).to_pylist()
    metrics = dict(row["metrics"])
    assert (metrics["mean_ttft_ms"], metrics["mean_tpot_ms"]) == (400.0, 35.0)
    assert (row["backend"], row["max_concurrency"], row["completed"]) == ("evalscope", 16, 200)
    assert row["duration_ns"] == 61_500_000_000
