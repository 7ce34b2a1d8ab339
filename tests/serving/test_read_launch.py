"""A launch's capture becomes rows: requests nested in it, numbers only where the arm is proved and timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.serving.conftest import WriteLaunch
from tilewatch.tasks.collect.manifest import CaptureError, write_manifest
from tilewatch.tasks.measure.serving.errors import LaunchError
from tilewatch.tasks.measure.serving.metrics import RequestResult
from tilewatch.tasks.read.captures.server_capture import read_launch
from tilewatch.tasks.read.captures.server_results import read_results
from tilewatch.tasks.read.origin import Origin

THREE = RequestResult(8, ttft_s=0.2, latency_s=0.5, itl_s=[0.1, 0.2], output_tokens=3)
ONE = RequestResult(8, ttft_s=0.25, latency_s=0.25, output_tokens=1)
ORIGIN = Origin("c" * 32, "run", "build", "id", "E", "bf16", "measured", 0)


def test_requests_carry_their_times_and_one_token_has_no_time_per_token(
    write_launch: WriteLaunch,
) -> None:
    first, second = read_launch(write_launch([THREE, ONE]), raw_prefix="raw/E").requests.to_pylist()
    assert (first["ttft_ns"], first["e2e_ns"], first["tpot_ns"]) == (200_000_000, 500_000_000, 150_000_000)
    assert first["itl_ns"] == [100_000_000, 200_000_000] and first["request_index"] == 0
    assert (second["tpot_ns"], second["itl_ns"], second["ok"]) == (None, [], True)


def test_the_summary_becomes_metrics_in_ns_and_per_second(write_launch: WriteLaunch) -> None:
    tables = read_launch(write_launch([THREE, ONE]), raw_prefix="raw/E")
    values = {(r["metric"], r["statistic"]): r["value"] for r in tables.serving_metrics.to_pylist()}
    assert values["ttft_ns", "mean"] == pytest.approx(225e6)
    assert values["tpot_ns", "mean"] == pytest.approx(150e6)
    assert (values["output_token_per_s", "total"], values["request_per_s", "total"]) == (2.0, 1.0)


def test_a_failed_or_profiled_launch_has_no_metric_but_its_requests(
    write_launch: WriteLaunch,
) -> None:
    failure = LaunchError("load", "1 of 2 requests failed")
    broken = RequestResult(8, error="stalled: nothing came for 20 s after 0 tokens")
    failed = read_launch(write_launch([THREE, broken], failure=failure), raw_prefix="raw/E")
    assert failed.serving_metrics.num_rows == 0 and failed.requests.num_rows == 2
    (row,) = failed.launches.to_pylist()
    assert (row["status"], row["failure_stage"], row["failure_reason"]) == ("failed", "load", str(failure))
    assert row["last_log_lines"] == "loading\nready"
    profiled = read_launch(write_launch([THREE], role="profile"), raw_prefix="raw/E")
    assert profiled.serving_metrics.num_rows == 0 and profiled.requests["role"].to_pylist() == ["profile"]


def test_what_the_server_tells_stands_on_the_launch(write_launch: WriteLaunch) -> None:
    info = {"weight_formats": {"wq_a": 29, "w13": 2}, "kv_capacity_tokens": 512, "expert_tokens": [3, 4]}
    (row,) = read_launch(write_launch([ONE], info=info), raw_prefix="raw/E").launches.to_pylist()
    assert (row["weight_format"], row["kv_capacity_tokens"]) == ("mixed", 512)
    assert row["expert_tokens"] == [0, 0], "tokens before the load are not the load's"
    assert row["proof"] == ["arm: bf16, as expected (server info)"] and row["arm_proved"] is True
    assert row["forced_differences"][0].startswith("BF16 weights take twice the bytes")


def test_a_bad_result_line_goes_to_quarantine_and_the_rest_is_kept(write_launch: WriteLaunch) -> None:
    cut = json.dumps({"completed": 1, "duration": 1.0, "errors": [""]})
    tables = read_launch(write_launch([THREE], extra_lines=(cut, "{")), raw_prefix="raw/E")
    assert tables.requests.num_rows == 1
    reasons = [(r["source_line"], r["reason"]) for r in tables.quarantine.to_pylist()]
    assert reasons[0] == (
        2,
        "no list input_lens, output_lens, ttfts, itls: written without --output-details?",
    )
    assert reasons[1][0] == 3


def test_documents_that_name_different_arms_are_refused_as_a_whole(write_launch: WriteLaunch) -> None:
    folder = write_launch([THREE])
    launch = json.loads((folder / "launch.json").read_text())
    (folder / "launch.json").write_text(json.dumps({**launch, "arm": "w8a8_nz"}))
    write_manifest(folder)
    with pytest.raises(CaptureError, match=r"launch.json is of arm w8a8_nz, not bf16"):
        read_launch(folder, raw_prefix="raw/E")


def test_a_real_result_of_sglangs_client_is_read_by_the_same_reader(shared: Path) -> None:
    path = shared / "samples/serving/sglang_0.5.23_random_ids_details.jsonl"
    results = read_results(path, path.name, ORIGIN, "timing", "load")
    summary = json.loads(path.read_text())
    assert results.requests.num_rows == 12 and results.quarantine.num_rows == 0
    row = results.requests.to_pylist()[0]
    assert row["e2e_ns"] == round((summary["ttfts"][0] + sum(summary["itls"][0])) * 1e9)
    values = {(r["metric"], r["statistic"]): r["value"] for r in results.metrics.to_pylist()}
    assert values["tpot_ns", "p99"] == pytest.approx(summary["p99_tpot_ms"] * 1e6)
    assert values["output_token_per_s", "total"] == summary["output_throughput"]
    mean_tpot_ns = sum(results.requests["tpot_ns"].to_pylist()) / 12
    # The client's lists end with the last token, its summary's TPOT with the end of the stream.
    assert mean_tpot_ns == pytest.approx(summary["mean_itl_ms"] * 1e6)
    assert mean_tpot_ns < summary["mean_tpot_ms"] * 1e6
