"""Result lines of the serving benchmark client."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from tilewatch.data_contracts import schema
from tilewatch.tasks.read.captures import serving_bench
from tilewatch.tasks.read.origin import Origin


def test_a_real_result_gives_every_number_by_name(shared: Path, origin: Origin) -> None:
    result = serving_bench.read(shared / "samples/serving/sglang_0.5.23_random_ids_details.jsonl", origin)
    (row,) = result.table.to_pylist()
    assert (row["completed"], row["duration_ns"], row["max_concurrency"]) == (12, 698777056, 4)
    assert dict(row["metrics"])["median_tpot_ms"] == pytest.approx(11.367062)
    assert "request_rate" not in dict(row["metrics"])
    assert result.facts["detailed_requests"] == 12


def test_damaged_lines_are_refused_by_number_and_the_rest_kept(tmp_path: Path, origin: Origin) -> None:
    good = '{"completed": 1, "duration": 2.5, "request_rate": Infinity}'
    lines = [
        good,
        '{"completed": 1,',
        "",
        '{"completed": 1}',
        "[]",
        good,
        '{"completed": 1, "duration": -1}',
        "\udcff",
    ]
    path = tmp_path / "r.jsonl"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    result = serving_bench.read(path, origin)
    assert result.table["source_line"].to_pylist() == [1, 6]
    assert result.quarantine["source_line"].to_pylist() == [2, 4, 5, 7, 8]


def test_per_request_lists_become_requests_and_metrics(shared: Path, origin: Origin) -> None:
    path = shared / "samples/serving/sglang_0.5.23_random_ids_details.jsonl"
    result = serving_bench.read(path, origin)
    requests, metrics = result.also["requests"], result.also["serving_metrics"]
    assert requests.schema.equals(schema("requests")) and requests.num_rows == 12
    (mean,) = metrics.filter(
        (pc.field("metric") == "ttft_ns") & (pc.field("statistic") == "mean")
    ).to_pylist()
    assert mean["value"] == pytest.approx(57.77363800014731e6) and mean["request_count"] == 12
    assert pc.mean(requests["ttft_ns"]).as_py() == pytest.approx(mean["value"], rel=1e-6)
    assert len(set(metrics["load_id"].to_pylist())) == 1


def test_a_line_without_lists_gives_its_summary_only(tmp_path: Path, origin: Origin) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"completed": 1, "duration": 2.5, "mean_ttft_ms": 3.0}\n')
    result = serving_bench.read(path, origin)
    assert result.table.num_rows == 1 and result.also == {} and result.quarantine.num_rows == 0
