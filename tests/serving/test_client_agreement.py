"""SGLang's client and the built-in one load the same server in one run, and their numbers agree.

SGLang takes over 5 GB, so it stands in an environment of its own, named by TILEWATCH_SGLANG_PYTHON; run with
``pytest -m sglang -s tests/serving/test_client_agreement.py``.
"""

from __future__ import annotations

import json
import os
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.serving.conftest import EXPERIMENTS
from tilewatch.tasks.measure.serving.capture import LaunchFacts
from tilewatch.tasks.measure.serving.kept import kept
from tilewatch.tasks.measure.serving.load import BUILTIN, Loader, sglang_client
from tilewatch.tasks.measure.serving.metrics import RequestResult, result_line
from tilewatch.tasks.measure.serving.processes import free_port
from tilewatch.tasks.measure.serving.server import REFERENCE, ServerOf, command_of
from tilewatch.tasks.plan.serving import load_serving_experiments
from tilewatch.tasks.plan.serving_plan import Client, ServingPlan, ServingRequest, make_serving_plan

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1800)]
ROUNDS = 2
LOAD = {"input_tokens": 64, "output_tokens": 24, "prompts": 8, "max_concurrency": 4}
PER_STEP = "tpot_per_server_step"
"""Mean TPOT over the server's own mean decode step in the same repeat: free of how busy the machine was."""
TOLERANCES = {
    PER_STEP: 0.05,
    "mean_ttft_ms": 0.15, "mean_tpot_ms": 0.10, "mean_itl_ms": 0.10, "mean_e2e_latency_ms": 0.10,
    "output_throughput": 0.10, "request_throughput": 0.10,
}  # fmt: skip
"""Largest relative difference of the medians over the rounds. But for PER_STEP these hold on a quiet machine:
where the rounds of one client scatter by more, no smaller difference can be told."""


@pytest.fixture(scope="module")
def sglang() -> Client:
    """SGLang's client in the environment of its own."""
    python = os.environ.get("TILEWATCH_SGLANG_PYTHON")
    found = sglang_client([python]) if python else None
    if found is None:
        pytest.skip("needs SGLang: set TILEWATCH_SGLANG_PYTHON to an interpreter that has sglang")
    return found


def _plan(client: Client) -> ServingPlan:
    experiment = load_serving_experiments(EXPERIMENTS)["E"]
    made = make_serving_plan(experiment, ServingRequest("smoke", "cpu", seed=1), client)
    return replace(made, load={**made.load, **LOAD, "request_timeout_s": 120})


def _results(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "results.jsonl").read_text().replace("Infinity", "null").splitlines()
    return [json.loads(line) for line in lines]


def test_both_clients_agree_on_the_same_server(sglang: Client, facts: LaunchFacts, tmp_path: Path) -> None:
    port = free_port()
    words = _plan(BUILTIN).server["command"]
    values = {
        "measure_python": facts.measure_python, "reference_server": str(REFERENCE), "port": str(port),
        "arm": "w8a8_nd", "agent": "cpu",
    }  # fmt: skip
    environment = {**os.environ, "SGLANG_NPU_DISABLE_ACL_FORMAT_WEIGHT": "1"}
    log = tmp_path / "server.log"
    with kept(command_of(words, values), environment, "agreement", log, log, 5) as process:
        server = ServerOf(process, port, _plan(BUILTIN).server)
        server.wait_until_ready(120)
        loaders = []
        for client in (BUILTIN, sglang):
            plan, folder = _plan(client), tmp_path / client.name
            folder.mkdir()
            load = {**plan.load, "vocabulary": plan.server["vocabulary"]}
            (folder / "load.json").write_text(json.dumps(load))
            loader = Loader(client, plan.client_rules, load, folder, os.environ, f"agreement-{client.name}")
            loaders.append(loader)
        loaders[0].warm_up(server, 0, 300)
        steps: dict[str, list[float]] = {"builtin": [], "sglang": []}
        for round_index in range(ROUNDS):
            for loader in loaders if round_index % 2 == 0 else reversed(loaders):
                before = server.info()
                loader.repeat(server, round_index, seed=round_index, limit_s=600)
                steps[loader.client.name].append(_decode_step_ms(before, server.info()))
        server.close()
    own, theirs = _results(tmp_path / "builtin"), _results(tmp_path / "sglang")
    assert [r["completed"] for r in (*own, *theirs)] == [LOAD["prompts"]] * 2 * ROUNDS
    assert {n for r in (*own, *theirs) for n in r["input_lens"]} == {LOAD["input_tokens"]}
    assert {n for r in (*own, *theirs) for n in r["output_lens"]} == {LOAD["output_tokens"]}
    for name, results in (("builtin", own), ("sglang", theirs)):
        for result, step_ms in zip(results, steps[name], strict=True):
            result[PER_STEP] = result["mean_tpot_ms"] / step_ms
    _print_and_compare(own, theirs)
    _same_definitions(theirs)


def _decode_step_ms(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Mean wall time of the decode steps between two answers of the server."""
    total_ns, steps = (after[k]["decode"] - before[k]["decode"] for k in ("step_time_total_ns", "steps"))
    return float(total_ns / steps / 1e6)


def _print_and_compare(own: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """Medians over the rounds differ by no more than the tolerance, or than one client's own rounds do."""
    print(f"\n{'metric':20} {'builtin':>10} {'sglang':>10} {'change':>10} {'tolerance':>10} {'scatter':>8}")
    wrong = []
    for metric, tolerance in TOLERANCES.items():
        mine, other = ([r[metric] for r in results] for results in (own, theirs))
        difference = statistics.median(mine) / statistics.median(other) - 1
        scatter = max((max(v) - min(v)) / statistics.median(v) for v in (mine, other))
        numbers = f"{statistics.median(mine):10.3f} {statistics.median(other):10.3f} {difference:+10.1%}"
        print(f"{metric:20} {numbers} {tolerance:10.0%} {scatter:8.0%}")
        if abs(difference) > (tolerance if metric == PER_STEP else max(tolerance, scatter)):
            wrong.append(metric)
    shares = [r["client_cpu_share"] for r in own]
    print(f"the built-in client used {statistics.median(shares):.1%} of a core")
    assert wrong == []


def _same_definitions(theirs: list[dict[str, Any]]) -> None:
    """SGLang's own per-request lists, put through the built-in definitions, give SGLang's own summary.

    Its lists hold no end of the stream, so that TPOT and E2E lack the time from the last token to it.
    """
    for result in theirs:
        rows = zip(result["input_lens"], result["ttfts"], result["itls"], result["output_lens"], strict=True)
        again = result_line(
            LOAD | {"request_rate": None},
            [RequestResult(n, ttft, ttft + sum(itl), itl, tokens) for n, ttft, itl, tokens in rows],
            result["duration"],
            0.0,
        )
        for name in ("ttft", "itl"):
            for statistic in ("mean", "median", "std", "p90", "p95", "p99"):
                key = f"{statistic}_{name}_ms"
                assert again[key] == pytest.approx(result[key], rel=1e-9), key
        for key in ("output_throughput", "request_throughput"):
            assert again[key] == pytest.approx(result[key], rel=1e-9), key
        for key in ("mean_tpot_ms", "mean_e2e_latency_ms"):
            assert again[key] == pytest.approx(result[key], rel=0.02), key
