"""What the numbers of a serving client mean, and the result line they are written in.

Definitions and keys are those of SGLang's ``sglang.benchmark.serving`` (0.5.23), so that either client's file
is read by the same reader:

- **TTFT**: from just before a request is sent to the arrival of the first chunk with text. Waiting for
  a free place under the concurrency bound comes before, and is not in it.
- **ITL**: the gaps between consecutive chunks that carry text, over all requests.
- **E2E**: from just before the request is sent to the last line of the stream, its end mark included.
- **TPOT**: (E2E - TTFT) / (output tokens - 1), one number a request; none where one token or none came.
- **output throughput**: output tokens of all requests that went well / duration of the run;
  **request throughput**: their number / duration.

Percentiles interpolate linearly; the standard deviation is that of the population. Requests that failed enter
none of the numbers. Output tokens are what the server's usage says, else the chunks with text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

CLIENT = "tilewatch builtin"
VERSION = "1"


@dataclass
class RequestResult:
    """One request as the client saw it. Times in s; ``error`` is empty where it ended as asked for."""

    input_tokens: int
    ttft_s: float = 0.0
    latency_s: float = 0.0
    itl_s: list[float] = field(default_factory=list)
    output_tokens: int = 0
    error: str = ""

    @property
    def tpot_s(self) -> float | None:
        """(E2E - TTFT) / (output tokens - 1); None with one token or none."""
        if self.output_tokens <= 1:
            return None
        return (self.latency_s - self.ttft_s) / (self.output_tokens - 1)


def result_line(
    load: Mapping[str, Any], results: Sequence[RequestResult], duration_s: float, cpu_s: float
) -> dict[str, Any]:
    """The line of one run: SGLang's keys with per-request lists, times in s there and in ms in the summary.

    Beside SGLang's keys: ``latencies`` (E2E of each request) and ``client_cpu_share``, the share of one core
    that this client itself used while it ran.
    """
    good = [r for r in results if not r.error]
    tokens_in, tokens_out = (sum(getattr(r, f"{way}_tokens") for r in good) for way in ("input", "output"))
    latencies = [r.latency_s for r in good]
    return {
        "tag": None,
        "client": CLIENT,
        "client_version": VERSION,
        "backend": "openai",
        "dataset_name": "random-ids",
        "request_rate": load["request_rate"],
        "max_concurrency": load["max_concurrency"],
        "random_input_len": load["input_tokens"],
        "random_output_len": load["output_tokens"],
        "random_range_ratio": 1.0,
        "duration": duration_s,
        "completed": len(good),
        "total_input_tokens": tokens_in,
        "total_output_tokens": tokens_out,
        "request_throughput": len(good) / duration_s,
        "input_throughput": tokens_in / duration_s,
        "output_throughput": tokens_out / duration_s,
        "total_throughput": (tokens_in + tokens_out) / duration_s,
        **_statistics("e2e_latency", latencies),
        **_statistics("ttft", [r.ttft_s for r in good]),
        **_statistics("tpot", [t for r in good if (t := r.tpot_s) is not None]),
        **_statistics("itl", [gap for r in good for gap in r.itl_s]),
        "concurrency": sum(latencies) / duration_s,
        "accept_length": None,
        "client_cpu_share": cpu_s / duration_s,
        "input_lens": [r.input_tokens for r in results],
        "output_lens": [0 if r.error else r.output_tokens for r in results],
        "ttfts": [r.ttft_s for r in results],
        "itls": [r.itl_s for r in results],
        "latencies": [r.latency_s for r in results],
        "errors": [r.error for r in results],
    }


def _statistics(name: str, values_s: Sequence[float]) -> dict[str, float | None]:
    """Mean, median, std and percentiles in ms; null where there is no value."""
    names = ("mean", "median", "std", "p90", "p95", "p99")
    if not values_s:
        return {f"{statistic}_{name}_ms": None for statistic in names}
    values = np.asarray(values_s) * 1000
    numbers = (values.mean(), np.median(values), values.std(), *np.percentile(values, (90, 95, 99)))
    return {f"{statistic}_{name}_ms": float(number) for statistic, number in zip(names, numbers, strict=True)}
