"""Continuous batching: which requests a step serves, and what the step's tensors are.

The rule: while the first waiting request fits (a running slot, KV for all that it can ever need), the next
step is a prefill of as many as fit into ``max_prefill_tokens``, in order of arrival; a longer prompt goes
alone. Otherwise the next step decodes one token of every running request. A prefill yields the first token.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, List, Optional, Sequence

import torch
from decoder import Batch, Segment
from kv_cache import KvCache

EXTEND, DECODE = "EXTEND", "DECODE"


class Request:
    """One completion: what was asked for, what has been produced, and the KV slots it holds."""

    def __init__(self, prompt: Sequence[int], max_tokens: int, ignore_eos: bool, number: int = 0) -> None:
        self.prompt = list(prompt)
        self.max_tokens = max_tokens
        self.ignore_eos = ignore_eos
        self.number = number
        self.output: List[int] = []
        self.slots: List[int] = []
        self.finish_reason: Optional[str] = None
        self.aborted = False
        self.stalled = False

    @property
    def tokens_at_most(self) -> int:
        """Slots that the request can ever need; its last token is never written."""
        return len(self.prompt) + self.max_tokens - 1

    def accept(self, token: int, eos_token: int) -> None:
        """Take the next token and notice the end."""
        self.output.append(token)
        if token == eos_token and not self.ignore_eos:
            self.finish_reason = "stop"
        elif len(self.output) == self.max_tokens:
            self.finish_reason = "length"


class Scheduler:
    """Waiting and running requests of one engine; used by its thread alone."""

    def __init__(self, cache: KvCache, max_running: int, max_prefill_tokens: int) -> None:
        self._cache = cache
        self._max_running = max_running
        self._max_prefill_tokens = max_prefill_tokens
        self.waiting: Deque[Request] = deque()
        self.running: List[Request] = []

    def add(self, request: Request) -> None:
        """Let a request wait."""
        self.waiting.append(request)

    def admitted(self) -> List[Request]:
        """The requests of the next prefill step, now running and with their KV reserved; may be empty."""
        chosen: List[Request] = []
        tokens = 0
        while self.waiting and len(self.running) < self._max_running:
            request = self.waiting[0]
            tokens += len(request.prompt)
            too_many = bool(chosen) and tokens > self._max_prefill_tokens
            if too_many or request.tokens_at_most > self._cache.free_tokens:
                break
            self.waiting.popleft()
            request.slots = self._cache.reserve(request.tokens_at_most)
            self.running.append(request)
            chosen.append(request)
        return chosen

    def decodable(self) -> List[Request]:
        """The running requests that get a token in a decode step."""
        return [request for request in self.running if not request.stalled]

    def drop_ended(self) -> None:
        """Forget finished and aborted requests and free their KV."""
        for request in self.running:
            if request.finish_reason or request.aborted:
                self._cache.release(request.slots)
                request.slots = []
        self.running = [r for r in self.running if r.slots]
        self.waiting = deque(r for r in self.waiting if not r.aborted)


def prefill_batch(requests: Sequence[Request]) -> Batch:
    """All prompt tokens of ``requests``."""
    return _batch([(r, 0, len(r.prompt), r.prompt) for r in requests])


def decode_batch(requests: Sequence[Request]) -> Batch:
    """The last token of every request."""
    parts = []
    for request in requests:
        position = len(request.prompt) + len(request.output) - 1
        parts.append((request, position, position + 1, request.output[-1:]))
    return _batch(parts)


def _batch(parts: Sequence[Any]) -> Batch:
    """A batch of (request, first position, end position, tokens)."""
    tokens: List[int] = []
    positions: List[int] = []
    slots: List[int] = []
    segments = []
    for request, first, end, new in parts:
        start = len(tokens)
        tokens += new
        positions += range(first, end)
        slots += request.slots[first:end]
        context = torch.tensor(request.slots[:end])
        segments.append(Segment(start, len(tokens), context))
    return Batch(
        torch.tensor(tokens),
        torch.tensor(positions),
        torch.tensor(slots),
        segments,
    )
