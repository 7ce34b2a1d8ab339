"""The server as a client meets it: a real process, real HTTP."""

from __future__ import annotations

import contextlib
import gzip
import json
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.measure.reference_server.conftest import SERVER, Server
from tilewatch.tasks.analyse.savings.phases import phase_costs
from tilewatch.tasks.read.captures.server_stages import read_stages
from tilewatch.tasks.read.origin import Origin

Start = Callable[..., Server]


def tokens_of(events: list[Any]) -> list[int]:
    return [token for event in events[:-1] for token in event["choices"][0]["token_ids"]]


def test_a_stream_has_one_token_a_chunk_and_ends_with_done(server: Server) -> None:
    events = list(server.events({"prompt": [1, 2, 3], "max_tokens": 5, "ignore_eos": True, "extra": 1}))
    assert len(events) == 6 and events[-1] == "[DONE]"
    choices = [event["choices"][0] for event in events[:-1]]
    assert [choice["text"] for choice in choices] == [f" t{token}" for token in tokens_of(events)]
    assert [choice["finish_reason"] for choice in choices] == [None] * 4 + ["length"]


def test_words_and_ids_mean_the_same_and_a_whole_answer_has_the_streamed_tokens(server: Server) -> None:
    asked = {"max_tokens": 4, "ignore_eos": True, "temperature": 0}
    status, whole = server.ask("POST", "/v1/completions", {"prompt": "t7 t8 9", **asked})
    stream = list(server.events({"prompt": [7, 8, 9], "stream_options": {"include_usage": True}, **asked}))
    usage = stream.pop(-2)
    assert (status, whole["choices"][0]["token_ids"]) == (200, tokens_of(stream))
    assert usage["choices"] == [] and usage["usage"] == whole["usage"]
    assert whole["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


BAD = [
    ({"prompt": []}, "prompt: must be a list of token ids or a string of words, and not empty"),
    ({"prompt": [2048]}, "prompt: 2048 is no token id from 0 to 2047"),
    ({"prompt": [[1], [2]]}, "prompt: [1] is no token id"),
    ({"prompt": "t1 hello"}, "prompt: 'hello' is no word of the vocabulary, t0 to t2047"),
    ({"prompt": [1], "max_tokens": 0}, "max_tokens 0: must be a whole number of at least 1"),
    ({"prompt": [1], "max_tokens": "4"}, "max_tokens '4': must be a whole number"),
    ({"prompt": [1], "max_tokens": 2048}, "more than the 2048 that context and KV cache hold"),
    ({"prompt": [1], "temperature": 0.7}, "temperature 0.7: decoding is greedy, only 0 is served"),
    ({"prompt": [1], "n": 2}, "n 2: one completion a request is served"),
    ({"prompt": [1], "stream": "yes"}, "stream 'yes': must be true or false"),
    ({"prompt": [1], "stream_options": [1]}, "stream_options: must be an object"),
    (b"{", "body is not JSON"),
    (b"[]", "body: must be a JSON object"),
]


@pytest.mark.parametrize(("body", "message"), BAD, ids=[message[:24] for _, message in BAD])
def test_a_bad_request_is_answered_with_400_and_the_field(server: Server, body: Any, message: str) -> None:
    status, answer = server.ask("POST", "/v1/completions", body)
    assert status == 400 and message in answer["error"]["message"]


def test_paths_methods_and_sizes_that_are_not_served_are_said_to_be_so(server: Server) -> None:
    assert server.ask("GET", "/v2/models")[0] == 404
    assert server.ask("GET", "/v1/completions")[0] == 405
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
        raw.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
        raw.sendall(b"hello\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 400 ")


def test_server_info_proves_the_arm_and_counts_the_steps(server: Server) -> None:
    before = server.ask("GET", "/server_info")[1]
    body = {"max_tokens": 8, "ignore_eos": True}
    with ThreadPoolExecutor(4) as pool:
        asked = [{"prompt": [n, n + 1], **body} for n in range(4)]
        answers = list(pool.map(lambda b: tokens_of(list(server.events(b))), asked))
    info = server.ask("GET", "/server_info")[1]
    assert [len(tokens) for tokens in answers] == [8] * 4
    assert (info["arm"], info["quantization"], info["pid"]) == ("w8a8_nz", "w8a8_int8", server.process.pid)
    assert set(info["weight_formats"].values()) == {29} and set(info["other_weight_formats"].values()) == {2}
    assert {"torch", "kernels", "reference_server"} <= set(info["components"])
    assert Counter(info["dispatched_operators"].values()) == {
        "cpu_quant_matmul_weight_nz": 5 * 3,
        "cpu_grouped_matmul_weight_nz": 2 * 3,
        "cpu_matmul_weight_nz": 3,
        "aten::mm": 4,
    }
    requests = info["step_requests_total"]["decode"] - before["step_requests_total"]["decode"]
    assert requests == 4 * 7 and info["step_requests_total"]["prefill"] >= 4
    rows = sum(info["expert_tokens"]) - sum(before["expert_tokens"])
    assert rows == (4 * 2 + 4 * 7) * 3 * 2
    assert info["kv_free_tokens"] == info["kv_capacity_tokens"] and info["running_requests"] == 0


def test_requests_that_overlap_are_decoded_in_one_batch(server: Server) -> None:
    before = server.ask("GET", "/server_info")[1]
    first = server.events({"prompt": [5] * 20, "max_tokens": 40, "ignore_eos": True})
    next(first)
    second = list(server.events({"prompt": [6], "max_tokens": 10, "ignore_eos": True}))
    assert len(second) == 11 and len(list(first)) == 40
    after = server.ask("GET", "/server_info")[1]
    decode = [i["step_requests_total"]["decode"] - i["steps"]["decode"] for i in (before, after)]
    assert decode[1] - decode[0] == 9  # nine decode steps served two requests


def test_a_client_that_leaves_frees_its_slots(server: Server) -> None:
    stream = server.events({"prompt": [5], "max_tokens": 2000, "ignore_eos": True})
    next(stream)
    stream.close()
    server.wait_for(r"request \d+: the client is gone after \d+ tokens")
    info = server.ask("GET", "/server_info")[1]
    assert (info["running_requests"], info["kv_free_tokens"]) == (0, info["kv_capacity_tokens"])


def test_stage_profiles_have_annotated_steps_whose_parts_do_not_overlap_and_add_up(
    server: Server, tmp_path: Path
) -> None:
    steps, asked = 2, {"output_dir": str(tmp_path / "p"), "num_steps": 2, "profile_by_stage": True}
    assert server.ask("POST", "/start_profile", asked)[0] == 200
    assert server.ask("POST", "/start_profile", asked)[1]["error"]["message"].startswith("a profile is al")
    for _ in range(2):
        list(server.events({"prompt": [1, 2, 3, 4], "max_tokens": 5, "ignore_eos": True}))
    said = server.ask("GET", "/server_info")[1]["profile"]
    assert not said["active"]
    assert sorted(p.name for p in (tmp_path / "p").iterdir()) == sorted(said["files"])
    for stage in ("EXTEND", "DECODE"):
        (path,) = (tmp_path / "p").glob(f"*-TP-0-{stage}.trace.json.gz")
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        ranges = sorted((e["ts"], e["ts"] + e["dur"], e["name"]) for e in events if _is_range(e))
        bounds = [r for r in ranges if r[2] == f"step[{stage} bs=1]"]
        parts = [r for r in ranges if not r[2].startswith("step[")]
        assert len(bounds) == steps and len(parts) + steps == len(ranges)
        assert all(left[1] <= right[0] for left, right in pairwise(parts))
        assert all(any(s[0] <= p[0] and p[1] <= s[1] for s in bounds) for p in parts)
        categories = {part[2].split(":")[0] for part in parts}
        assert categories == {
            "norm", "attention", "dense", "router", "dispatch", "expert", "combine", "residual", "quant",
            "other",
        }  # fmt: skip
        names = Counter(event["name"] for event in events if event.get("cat") == "cpu_op")
        assert names["npu::npu_grouped_matmul"] == 2 * 3 * steps
        assert names["npu::npu_quant_matmul"] == 5 * 3 * steps
    found = read_stages(tmp_path / "p", Origin("c", "r", "b", "b", "E", "w8a8_nz", "measured", 0))
    costs = phase_costs(found.kernels, found.stage_steps).to_pylist()
    for phase in ("prefill", "decode"):
        own = [row for row in costs if row["phase"] == phase]
        assert {row["steps"] for row in own} == {steps} and {row["category"] for row in own} > categories
        assert sum(row["exposed_ns"] for row in own) == own[0]["step_ns"]


def test_a_profile_that_is_stopped_has_the_steps_that_were_made(server: Server, tmp_path: Path) -> None:
    asked = {"output_dir": str(tmp_path), "num_steps": 50, "profile_by_stage": True}
    server.ask("POST", "/start_profile", asked)
    list(server.events({"prompt": [1, 2], "max_tokens": 1}))
    (name,) = server.ask("POST", "/stop_profile")[1]["files"]
    events = json.loads(gzip.decompress((tmp_path / name).read_bytes()))["traceEvents"]
    assert name.endswith("-TP-0-EXTEND.trace.json.gz")
    assert [e["name"] for e in events if _is_range(e) and "[" in e["name"]] == ["step[EXTEND bs=1]"]


def _is_range(event: dict[str, Any]) -> bool:
    return event.get("cat") == "user_annotation" and event["ph"] == "X"


def test_a_profile_that_cannot_be_is_refused(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for body, message in (
        ({"profile_by_stage": True}, "output_dir: must be the folder"),
        ({"output_dir": str(tmp_path)}, "profile_by_stage: only true is served"),
        ({"output_dir": str(tmp_path / "file"), "profile_by_stage": True}, "output_dir: "),
        ({"output_dir": str(tmp_path), "profile_by_stage": True, "num_steps": 0}, "num_steps 0: must be"),
    ):
        status, answer = server.ask("POST", "/start_profile", body)
        assert status == 400 and answer["error"]["message"].startswith(message)
    assert server.ask("POST", "/stop_profile") == (
        400,
        {"error": {"message": "no profile is in progress", "code": 400}},
    )


def test_an_arm_file_and_the_environment_make_the_arm_and_sigterm_ends_it(
    start: Start, tmp_path: Path
) -> None:
    arm = tmp_path / "arm.json"
    arm.write_text(json.dumps({"arm": "bf16", "quantization": None, "comment": "ignored"}))
    server = start("--arm-file", str(arm), environment={"SGLANG_NPU_DISABLE_ACL_FORMAT_WEIGHT": "1"})
    assert server.ask("GET", "/health")[0] == 503
    server.wait_for("ready: ")
    assert server.ask("GET", "/health") == (200, {"status": "ready"})
    info = server.ask("GET", "/server_info")[1]
    assert (info["arm"], info["quantization"]) == ("bf16", None)
    assert set(info["weight_formats"].values()) == {2}
    assert info["environment"] == {"SGLANG_NPU_DISABLE_ACL_FORMAT_WEIGHT": "1"}
    assert "weight layers.0.w13 [8, 1024, 1024] format 2 ND\n" in server.text()
    stream = server.events({"prompt": [1], "max_tokens": 2000, "ignore_eos": True})
    next(stream)
    assert server.end() == 0
    assert server.text().endswith("stopped: a signal asked for it\n")


def test_faults_are_as_asked_for(start: Start) -> None:
    flags = ("--fault", "stall_request:1", "--fault", "no_profile_endpoint", "--fault", "die_after_tokens:6")
    server = start(*flags)
    server.wait_for("ready: ")
    assert server.ask("POST", "/start_profile", {})[0] == 404
    body = {"prompt": [1], "ignore_eos": True}
    stalled = server.events({**body, "max_tokens": 50})
    assert next(stalled)["choices"][0]["finish_reason"] is None
    assert len(list(server.events({**body, "max_tokens": 4}))) == 5
    assert server.ask("GET", "/server_info")[1]["running_requests"] == 1
    list(server.events({**body, "max_tokens": 4}))  # ends at the token that kills the server
    assert server.process.wait(20) == 70
    assert list(stalled) == []


def test_a_server_that_crashes_or_never_gets_ready_says_so(start: Start) -> None:
    crashed = start("--fault", "crash_at_load")
    assert crashed.process.wait(20) == 1
    assert "RuntimeError: crash_at_load was asked for\nfailed: the engine has ended" in crashed.text()
    never = start("--fault", "never_ready")
    assert never.ask("POST", "/v1/completions", {"prompt": [1]})[0] == 503
    assert never.end() == 0


def test_a_taken_port_and_a_wrong_flag_are_one_sentence(server: Server, tmp_path: Path) -> None:
    for flags, code, message in (
        (["--port", str(server.port)], 1, f"error: port {server.port}: "),
        (["--port", "0", "--fault", "stall_request"], 2, "error: --fault stall_request: not one of never_r"),
        (["--port", "0", "--arm-file", str(tmp_path / "no")], 2, "error: --arm-file "),
        (
            ["--port", "0", "--kv-capacity-tokens", "0"],
            2,
            "error: --kv-capacity-tokens 0: must be at least 1",
        ),
    ):
        done = subprocess.run(
            [sys.executable, str(SERVER), *flags], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr.startswith(message)) == (code, True), done.stderr
        assert done.stderr.count("\n") == 1


def test_the_server_dies_with_its_parent(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    command = [sys.executable, str(SERVER), "--port", "0", "--fault", "never_ready"]
    code = f"import subprocess; subprocess.Popen({command!r}, stdout=open({str(log)!r}, 'w')).wait()"
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        watched = Server.__new__(Server)
        watched.log, watched.process = log, parent
        log.touch()
        port = int(watched.wait_for(r"listening on http://127\.0\.0\.1:(\d+)"))
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            parent.send_signal(signal.SIGKILL)
            parent.wait()
            # Reset where the server had not accepted it yet, closed where it had; a living one lets it wait.
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
    finally:
        parent.kill()
