"""A small model for the tests inside this process, and real servers started as experiment E starts them."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.measure.run import PROGRAM

SERVER = PROGRAM.parents[1] / "reference_server" / "main.py"
FORMAT_VARIABLE = "SGLANG_NPU_DISABLE_ACL_FORMAT_WEIGHT"
ARMS = {"w8a8_nz": ("w8a8_int8", "0"), "w8a8_nd": ("w8a8_int8", "1"), "bf16": (None, "0")}
SEED = 5


@pytest.fixture(scope="session")
def server_modules(kernels: Any) -> Path:
    """Folder of the server, importable from here on as it is for itself, its kernels registered."""
    sys.path.append(str(SERVER.parent))
    return SERVER.parent


@pytest.fixture(scope="session")
def shape(server_modules: Path) -> Any:
    """A model small enough for an implementation that takes its time; weights stay aligned to NZ."""
    import torch
    from shape import ModelShape  # type: ignore[import-not-found]

    torch.set_num_threads(1)  # the matrices are small: a second thread would only be waited for

    return ModelShape(
        layers=2, hidden=256, q_lora=64, heads=4, head_dim=64, rope_dim=32, o_groups=2, o_lora=64,
        experts=4, expert_hidden=128, vocabulary=512, context_tokens=128,
    )  # fmt: skip


@pytest.fixture(scope="session")
def new_engine(shape: Any) -> Callable[..., Any]:
    """Maker of engines of an arm, of the small shape unless another is given; limits as given."""
    from engine import Engine, Limits  # type: ignore[import-not-found]
    from registry import backend_of  # type: ignore[import-not-found]

    def make(arm: str, of: Any = shape, **limits: Any) -> Any:
        quantization, disabled = ARMS[arm]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(FORMAT_VARIABLE, disabled)
            return Engine(backend_of("cpu"), of, SEED, quantization, Limits(112 << 20, **limits))

    return make


@pytest.fixture(scope="session")
def engines(new_engine: Callable[..., Any]) -> dict[str, Any]:
    """One engine of every arm."""
    return {arm: new_engine(arm) for arm in ARMS}


class Server:
    """One server process on a free port, and its answers."""

    def __init__(self, log: Path, *flags: str, environment: dict[str, str] | None = None) -> None:
        self.log = log
        command = [sys.executable, str(SERVER), "--port", "0", *flags]
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}
            )
        self.port = int(self.wait_for(r"listening on http://127\.0\.0\.1:(\d+)"))

    def wait_for(self, pattern: str) -> str:
        """The first group of ``pattern``, or all of it, once the log has it."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if found := re.search(pattern, self.text()):
                return found[found.re.groups]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} in the log:\n{self.text()}")

    def text(self) -> str:
        """The log so far."""
        return self.log.read_text(errors="replace")

    def open(self, method: str, path: str, body: Any = None) -> http.client.HTTPResponse:
        """The answer to one request; a body that is no bytes goes as JSON."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, data)
        return connection.getresponse()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON document of one answer."""
        with closing(self.open(method, path, body)) as answer:
            return answer.status, json.loads(answer.read())

    def events(self, body: Any) -> Iterator[Any]:
        """The events of a streamed completion, each a JSON document, the last one ``[DONE]``."""
        with closing(self.open("POST", "/v1/completions", {"stream": True, **body})) as answer:
            assert (answer.status, answer.getheader("Content-Type")) == (200, "text/event-stream")
            for line in answer:
                if line.strip():
                    assert line.startswith(b"data: ")
                    data = line[6:].strip().decode()
                    yield data if data == "[DONE]" else json.loads(data)

    def end(self) -> int:
        """Exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starter of servers; none outlives the test."""
    servers: list[Server] = []

    def begin(*flags: str, environment: dict[str, str] | None = None) -> Server:
        servers.append(Server(tmp_path / f"server{len(servers)}.log", *flags, environment=environment))
        return servers[-1]

    yield begin
    for server in servers:
        server.process.kill()
        server.process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A ready server of the default arm, for all tests that only ask it."""
    started = Server(tmp_path_factory.mktemp("server") / "server.log", "--arm", "w8a8_nz")
    try:
        started.wait_for("ready: ")
        yield started
    finally:
        started.process.kill()
        started.process.wait()
