"""The engine: the model of one arm, its KV cache and scheduler, one step at a time."""

from __future__ import annotations

import time
from typing import List, NamedTuple, Optional, Sequence

import torch
from backends import Backend
from batching import DECODE, EXTEND, Request, Scheduler, decode_batch, prefill_batch
from decoder import Decoder
from kv_cache import KvCache
from linears import Loader
from running_statistics import RunningStatistics
from server_identity import components
from shape import ModelShape
from spans import step_span
from stage_profile import StageProfile


class ModelTooLarge(RuntimeError):
    """The memory that was given leaves no KV cache beside the weights."""


class Limits(NamedTuple):
    """What bounds an engine; ``kv_capacity_tokens`` None means what ``memory_bytes`` leaves."""

    memory_bytes: int
    max_running_requests: int = 8
    max_prefill_tokens: int = 512
    kv_capacity_tokens: Optional[int] = None


class Token(NamedTuple):
    """What a step did for one request."""

    request: Request
    token: int
    finish_reason: Optional[str]


class Engine:
    """Loads its weights when it is made. Not thread-safe: one thread owns it."""

    def __init__(
        self, backend: Backend, shape: ModelShape, seed: int, quantization: Optional[str], limits: Limits
    ) -> None:
        self.shape, self.quantization = shape, quantization
        self.loader = Loader(backend, seed, quantization)
        self.decoder = Decoder(shape, self.loader)
        with torch.inference_mode():
            self.dispatched = self.decoder.dispatched()
        self.backend = backend
        self.components = components(backend)
        capacity = limits.kv_capacity_tokens or kv_capacity(shape, limits, self.loader.size_bytes)
        self.cache = KvCache(shape, capacity)
        self.scheduler = Scheduler(self.cache, limits.max_running_requests, limits.max_prefill_tokens)
        self.statistics = RunningStatistics()
        self.profile = StageProfile()

    def step(self) -> List[Token]:
        """One prefill or decode step; empty where nobody waits or runs."""
        self.scheduler.drop_ended()
        requests, stage = self.scheduler.admitted(), EXTEND
        if not requests:
            requests, stage = self.scheduler.decodable(), DECODE
        if not requests:
            return []
        self.profile.before_step(stage)
        start_ns = time.perf_counter_ns()
        make = prefill_batch if stage == EXTEND else decode_batch
        with torch.inference_mode(), step_span(stage, len(requests)):
            best = self.decoder(make(requests), self.cache).argmax(-1).tolist()
        self.statistics.step(stage, len(requests), time.perf_counter_ns() - start_ns)
        self.profile.after_step(stage)
        tokens = []
        for request, token in zip(requests, best):
            request.accept(token, self.shape.eos_token)
            tokens.append(Token(request, token, request.finish_reason))
        self.scheduler.drop_ended()
        return tokens

    def teacher_forced(self, prompt: Sequence[int], continuation: Sequence[int]) -> torch.Tensor:
        """BF16 logits [1 + len(continuation), vocabulary] after ``prompt`` and after every forced token.

        By the same prefill and decode steps that serve requests, in KV slots of its own.
        """
        request = Request(prompt, len(continuation) + 1, ignore_eos=True)
        request.slots = self.cache.reserve(request.tokens_at_most)
        with torch.inference_mode():
            rows = [self.decoder(prefill_batch([request]), self.cache)]
            for token in continuation:
                request.accept(token, self.shape.eos_token)
                rows.append(self.decoder(decode_batch([request]), self.cache))
        self.cache.release(request.slots)
        return torch.cat(rows)


def kv_capacity(shape: ModelShape, limits: Limits, weight_bytes: int) -> int:
    """Tokens that fit beside the weights. Raises ModelTooLarge where fewer than one context does."""
    tokens = (limits.memory_bytes - weight_bytes) // shape.kv_bytes_per_token
    if tokens < shape.context_tokens:
        raise ModelTooLarge(
            f"weights take {weight_bytes} of {limits.memory_bytes} bytes: KV cache is left for "
            f"{max(tokens, 0)} tokens, one context needs {shape.context_tokens}; raise --memory-mib"
        )
    return tokens
