"""The built-in client against a server whose delays are known: what it times, bounds, says is wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import pytest

from tilewatch.tasks.measure.serving.client import gaps_of, prompts_of, run_load
from tilewatch.tasks.measure.serving.metrics import RequestResult, result_line

FIRST_S, NEXT_S = 0.06, 0.02
LOAD: dict[str, Any] = {
    "input_tokens": 4, "output_tokens": 5, "prompts": 6, "max_concurrency": 2, "request_rate": None,
    "vocabulary": 100, "request_timeout_s": 0.5,
}  # fmt: skip


@dataclass
class Served:
    """A completions server with fixed delays; ``script`` says what goes wrong at which request."""

    script: dict[int, str] = field(default_factory=dict)
    seen: list[dict[str, Any]] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one exchange."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if head.startswith("GET"):
            await self._send(writer, 200, json.dumps({"data": [{"id": "stub"}]}).encode())
            return
        length = int(next(x for x in head.lower().split("\r\n") if x.startswith("content-length")).split()[1])
        self.seen.append(json.loads(await reader.readexactly(length)))
        fault = self.script.get(len(self.seen) - 1, "")
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self._stream(writer, fault)
        finally:
            self.under_way -= 1
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter, fault: str) -> None:
        if fault == "refuse":
            await self._send(writer, 400, b"prompt: too long")
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for token in range(3 if fault == "short" else 5):
            await asyncio.sleep(FIRST_S if token == 0 else NEXT_S)
            if fault == "stall" and token == 2:
                await asyncio.sleep(2)
            chunk = json.dumps({"choices": [{"text": f" t{token}"}]})
            writer.write(f"data: {chunk}\n\n".encode())
            await writer.drain()
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()

    async def _send(self, writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def _client(served: Served, timeout_s: float) -> AsyncIterator[httpx.AsyncClient]:
    server = await asyncio.start_server(served.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=timeout_s) as client:
        yield client
    server.close()


def _run(served: Served, **changes: Any) -> tuple[list[RequestResult], float]:
    load = {**LOAD, **changes}

    async def run() -> tuple[list[RequestResult], float]:
        async with _client(served, load["request_timeout_s"]) as client:
            return await run_load(client, load, prompts_of(load, 1, load["prompts"]), 1)

    return asyncio.run(run())


def test_times_are_no_shorter_than_the_servers_delays_and_nothing_waits_inside_them() -> None:
    served = Served()
    results, duration_s = _run(served, request_timeout_s=30)
    assert [r.error for r in results] == [""] * 6 and served.most_under_way == 2
    for result in results:
        assert result.output_tokens == 5 and len(result.itl_s) == 4
        assert result.ttft_s >= FIRST_S and min(result.itl_s) >= 0
        assert result.latency_s >= FIRST_S + 4 * NEXT_S - 0.002
        assert result.latency_s >= result.ttft_s + sum(result.itl_s)
    # Two places for six requests: a queue of three, whose waiting is in the duration and in no latency.
    assert sum(r.latency_s for r in results) <= 2 * duration_s


def test_what_is_sent_is_greedy_streamed_and_of_the_asked_length() -> None:
    served = Served()
    _run(served, prompts=1, request_timeout_s=30)
    (body,) = served.seen
    assert len(body["prompt"]) == 4 and (body["max_tokens"], body["stream"], body["ignore_eos"]) == (
        5,
        True,
        True,
    )
    assert (body["model"], body["temperature"]) == ("stub", 0.0)


def test_each_request_says_what_went_wrong_with_it() -> None:
    served = Served({0: "refuse", 1: "short", 2: "stall"})
    results, _ = _run(served, prompts=4, max_concurrency=1)
    assert results[0].error == "HTTP 400: prompt: too long"
    assert results[1].error == "ended after 3 of 5 tokens"
    assert results[2].error == "stalled: nothing came for 0.5 s after 2 tokens"
    assert results[3].error == ""


def test_a_summary_leaves_failed_requests_out() -> None:
    good = [
        RequestResult(4, ttft_s=0.1 * n, latency_s=0.1 * n + 0.4, itl_s=[0.1, 0.3], output_tokens=3)
        for n in (1, 2, 3)
    ]
    line = result_line(LOAD, [*good, RequestResult(4, error="stalled")], 2.0, 0.1)
    assert (line["completed"], line["total_output_tokens"], line["output_throughput"]) == (3, 9, 4.5)
    assert line["median_ttft_ms"] == pytest.approx(200) and line["mean_tpot_ms"] == pytest.approx(200)
    assert line["p99_ttft_ms"] == pytest.approx(float(np.percentile([100, 200, 300], 99)))
    assert line["std_itl_ms"] == pytest.approx(100) and line["client_cpu_share"] == pytest.approx(0.05)
    assert line["output_lens"] == [3, 3, 3, 0] and line["errors"] == ["", "", "", "stalled"]


def test_prompts_and_arrivals_are_the_same_for_the_same_seed() -> None:
    assert prompts_of(LOAD, 7, 3) == prompts_of(LOAD, 7, 3) != prompts_of(LOAD, 8, 3)
    assert gaps_of(None, 7, 3) == [0.0, 0.0, 0.0]
    gaps = gaps_of(20.0, 7, 4000)
    assert gaps == gaps_of(20.0, 7, 4000) and np.mean(gaps) == pytest.approx(1 / 20, rel=0.05)
    assert np.std(gaps) == pytest.approx(1 / 20, rel=0.1), "Poisson arrivals: exponential gaps"
