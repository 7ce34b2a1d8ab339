"""The built-in load client: ``python -m … LOAD.json --base-url … --output …``.

Streams OpenAI-compatible completions with bounded concurrency and, where a rate is given, Poisson arrivals.
One run appends one line to the output file; see ``metrics`` for what the numbers mean. Exit code 0 where the
run ended, whether or not requests failed: the line says which, and why.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tilewatch.tasks.measure.serving.metrics import RequestResult, result_line

CONNECT_TIMEOUT_S = 10.0
COMPLETIONS = "/v1/completions"
MODELS = "/v1/models"


def prompts_of(load: Mapping[str, Any], seed: int, count: int) -> list[list[int]]:
    """``count`` prompts of random token ids: the same for the same seed, on every machine."""
    ids = np.random.default_rng(seed).integers(0, load["vocabulary"], (count, load["input_tokens"]))
    return [[int(token) for token in prompt] for prompt in ids]


def gaps_of(rate_per_s: float | None, seed: int, count: int) -> list[float]:
    """Seconds between arrivals: exponential with mean 1 / rate; 0 without a rate."""
    if rate_per_s is None:
        return [0.0] * count
    return [float(gap) for gap in np.random.default_rng((seed, 1)).exponential(1 / rate_per_s, count)]


async def run_load(
    client: httpx.AsyncClient, load: Mapping[str, Any], prompts: Sequence[Sequence[int]], seed: int
) -> tuple[list[RequestResult], float]:
    """Send every prompt; results in their order, and the s from the first sending to the last end."""
    bound = load["max_concurrency"]
    places = asyncio.Semaphore(bound) if bound else None
    model = await _model(client)
    begun_s = time.perf_counter()
    tasks = []
    for prompt, gap_s in zip(prompts, gaps_of(load["request_rate"], seed, len(prompts)), strict=True):
        tasks.append(asyncio.create_task(_placed(places, client, model, prompt, load)))
        if gap_s:
            await asyncio.sleep(gap_s)
    results = await asyncio.gather(*tasks)
    return list(results), time.perf_counter() - begun_s


async def _model(client: httpx.AsyncClient) -> str:
    """Name of the first model that the server lists."""
    answer = await client.get(MODELS)
    answer.raise_for_status()
    return str(answer.json()["data"][0]["id"])


async def _placed(
    places: asyncio.Semaphore | None,
    client: httpx.AsyncClient,
    model: str,
    prompt: Sequence[int],
    load: Mapping[str, Any],
) -> RequestResult:
    async with places or nullcontext():
        return await send(client, model, prompt, load)


async def send(
    client: httpx.AsyncClient, model: str, prompt: Sequence[int], load: Mapping[str, Any]
) -> RequestResult:
    """One request from its sending to the end of its stream; whatever goes wrong is in ``error``."""
    result = RequestResult(len(prompt))
    body = {
        "model": model,
        "prompt": list(prompt),
        "max_tokens": load["output_tokens"],
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    sent_s = time.perf_counter()
    try:
        async with client.stream("POST", COMPLETIONS, json=body) as answer:
            if answer.status_code != 200:
                text = (await answer.aread()).decode("utf-8", "replace")
                result.error = f"HTTP {answer.status_code}: {text[:500]}"
                return result
            await _follow(answer, result, sent_s)
    except httpx.ReadTimeout:
        waited_s = load["request_timeout_s"]
        result.error = f"stalled: nothing came for {waited_s} s after {result.output_tokens} tokens"
    except (httpx.HTTPError, ValueError, KeyError) as error:
        said = str(error) or type(error).__name__
        result.error = f"{said} after {result.output_tokens} tokens"
    if not result.error and result.output_tokens < load["output_tokens"]:
        result.error = f"ended after {result.output_tokens} of {load['output_tokens']} tokens"
    return result


async def _follow(answer: httpx.Response, result: RequestResult, sent_s: float) -> None:
    """Read the server-sent events of one answer into ``result``."""
    last_s, tokens_by_usage = sent_s, None
    async for line in answer.aiter_lines():
        if not line.startswith("data:"):
            continue
        now_s = time.perf_counter()
        result.latency_s = now_s - sent_s
        data = line[len("data:") :].strip()
        if data == "[DONE]":
            break
        event = json.loads(data)
        tokens_by_usage = (event.get("usage") or {}).get("completion_tokens", tokens_by_usage)
        if not event.get("choices") or not event["choices"][0].get("text"):
            continue
        if result.output_tokens == 0:
            result.ttft_s = now_s - sent_s
        else:
            result.itl_s.append(now_s - last_s)
        last_s = now_s
        result.output_tokens += 1
    result.output_tokens = result.output_tokens if tokens_by_usage is None else tokens_by_usage


async def _main(options: argparse.Namespace) -> int:
    load = json.loads(options.load.read_text(encoding="utf-8"))
    if options.warm_up:
        load = {**load, "max_concurrency": 1, "request_rate": None}
    count = options.prompts or load["prompts"]
    timeout = httpx.Timeout(load["request_timeout_s"], connect=CONNECT_TIMEOUT_S, pool=None)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(
        base_url=options.base_url, timeout=timeout, limits=limits, trust_env=False
    ) as client:
        prompts = prompts_of(load, options.seed, count)
        cpu_s = time.process_time()
        results, duration_s = await run_load(client, load, prompts, options.seed)
        cpu_s = time.process_time() - cpu_s
    line = json.dumps(result_line(load, results, duration_s, cpu_s), allow_nan=False)
    with options.output.open("a", encoding="utf-8") as stream:
        stream.write(line + "\n")
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run the load once. Exit code 1 with one sentence on stderr where the server could not be asked."""
    parser = argparse.ArgumentParser(description="Load an OpenAI-compatible server and append one result.")
    parser.add_argument("load", type=Path, help="JSON: tokens, prompts, concurrency, rate, timeout")
    parser.add_argument("--base-url", required=True, help="address of the server")
    parser.add_argument("--output", type=Path, required=True, help="file that the result is appended to")
    parser.add_argument("--seed", type=int, required=True, help="seed of prompts and arrivals")
    parser.add_argument("--prompts", type=int, help="requests, where the load's number is not wanted")
    parser.add_argument("--warm-up", action="store_true", help="one request after the other")
    try:
        return asyncio.run(_main(parser.parse_args(arguments)))
    except (OSError, httpx.HTTPError, ValueError, KeyError) as error:
        sys.stderr.write(f"error: {type(error).__name__}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
