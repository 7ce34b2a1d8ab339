"""Which arm a server runs is read from it, not assumed; SGLang's client is run as the plan says."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.serving.conftest import EXPERIMENTS
from tilewatch.tasks.measure.serving.keeper import name_of
from tilewatch.tasks.measure.serving.kept import Kept
from tilewatch.tasks.measure.serving.load import Loader
from tilewatch.tasks.measure.serving.processes import LOOPBACK
from tilewatch.tasks.measure.serving.server import ServerOf
from tilewatch.tasks.measure.serving.verify import Check, verify, weight_format
from tilewatch.tasks.plan.serving import load_serving_experiments
from tilewatch.tasks.plan.serving_plan import Client, ServingPlan, ServingRequest, make_serving_plan

NOTHING: dict[str, Any] = {
    "info": {}, "environment": {}, "weight_format": None, "log": [], "log_absent": []
}  # fmt: skip


def _verify(tmp_path: Path, pid: int | None = None, **expect: Any) -> list[Check]:
    log = tmp_path / "server.log"
    log.write_text("loading\nSkipping FRACTAL_NZ format cast for wq_a\nready\n")
    info = {"quantization": "w8a8_int8", "model": {"layers": 3}}
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        wanted = {**NOTHING, **expect}
        return verify(wanted, arm="w8a8_nz", info=info, port=port, pid=pid or os.getpid(), log=log)


def _ok(checks: list[Check]) -> dict[str, bool]:
    return {check.what: check.ok for check in checks}


def test_a_stranger_that_answers_on_the_port_is_not_the_server(tmp_path: Path) -> None:
    server = subprocess.Popen(["sleep", "60"])
    try:
        stranger = _verify(tmp_path, pid=server.pid)[0]
    finally:
        server.kill()
        server.wait()
    assert not stranger.ok and stranger.found == f"{name_of(os.getpid())} (pid {os.getpid()})"
    assert _verify(tmp_path)[0].ok


def test_the_servers_own_words_are_compared_by_dotted_name(tmp_path: Path) -> None:
    found = _ok(_verify(tmp_path, info={"quantization": "w8a8_int8", "model.layers": 3, "model.heads": 8}))
    assert (found["quantization"], found["model.layers"], found["model.heads"]) == (True, True, False)


def test_the_environment_is_that_of_the_process_and_null_means_not_set(tmp_path: Path) -> None:
    found = _ok(_verify(tmp_path, environment={"TILEWATCH_NO_SUCH": None, "PATH": "elsewhere"}))
    assert (found["TILEWATCH_NO_SUCH"], found["PATH"]) == (True, False)


def test_the_log_must_show_a_line_or_must_not(tmp_path: Path) -> None:
    checks = _verify(tmp_path, log=["^ready$"], log_absent=["Skipping FRACTAL_NZ format cast"])
    assert [check.ok for check in checks[1:]] == [True, False]
    assert "Skipping FRACTAL_NZ format cast for wq_a, expected no line" in checks[2].sentence


def test_weights_are_one_format_or_mixed_or_not_said() -> None:
    assert weight_format({"weight_formats": {"wq_a": 29, "w13": 29}}) == "FRACTAL_NZ"
    assert weight_format({"weight_formats": {"wq_a": 29, "w13": 2}}) == "mixed"
    assert weight_format({}) is None


def _sglang_plan(**load: Any) -> ServingPlan:
    experiment = load_serving_experiments(EXPERIMENTS)["E"]
    client = Client("sglang", "0.5.23", "/opt/sglang/bin/python")
    made = make_serving_plan(experiment, ServingRequest("smoke", "cpu", seed=1), client)
    return replace(made, load={**made.load, "vocabulary": 8, **load})


def test_sglangs_client_is_run_as_the_file_says_without_flags_for_what_is_unbounded(tmp_path: Path) -> None:
    plan = _sglang_plan(max_concurrency=None)
    folder = tmp_path / "launch"
    loader = Loader(plan.client, plan.client_rules, plan.load, folder, {}, "mark")
    server = ServerOf(Kept(keeper=None, mark=""), 1234, plan.server)  # type: ignore[arg-type]
    words = loader._sglang(server, folder / "results.jsonl", seed=5)
    assert words[:3] == ["/opt/sglang/bin/python", "-m", "sglang.benchmark.serving"]
    assert "--max-concurrency" not in words and "--request-rate" not in words
    assert words[words.index("--base-url") + 1] == "http://127.0.0.1:1234"
    assert words[words.index("--random-output-len") + 1] == str(plan.load["output_tokens"])
    tokenizer = Path(words[words.index("--tokenizer") + 1])
    assert '"t7": 7' in (tokenizer / "tokenizer.json").read_text() and sys.executable not in words
