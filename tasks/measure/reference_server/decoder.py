"""The tiny decoder: one forward pass over the new tokens of several requests."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from kv_cache import KvCache
from layers import attention, combine, dispatch, rms_norm, rope_table, rotated, route, swiglu
from linears import Experts, FloatLinear, Loader, linear, quantised_rows
from shape import ModelShape
from spans import span


class Segment(NamedTuple):
    """One request's rows in a batch, [start, end), and the slots of its whole context up to the last row."""

    start: int
    end: int
    slots: torch.Tensor


class Batch(NamedTuple):
    """New tokens of all requests side by side: ``tokens``, ``positions`` and ``slots`` are int64 [T]."""

    tokens: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    segments: List[Segment]


class Decoder:
    """Weights of one arm. ``expert_tokens`` counts the rows that every expert has had, over all layers."""

    def __init__(self, shape: ModelShape, loader: Loader) -> None:
        self.shape = shape
        self._embedding = loader.host("embedding", (shape.vocabulary, shape.hidden))
        self._layers = [_Layer(shape, loader, f"layers.{index}") for index in range(shape.layers)]
        self._norm = loader.gain("norm", shape.hidden)
        self._lm_head = FloatLinear(loader, "lm_head", shape.hidden, shape.vocabulary, "other", None)
        self._rope = rope_table(shape.context_tokens, shape.rope_dim, shape.rope_theta)
        self.expert_tokens = [0] * shape.experts
        self.loader = loader

    def __call__(self, batch: Batch, cache: KvCache) -> torch.Tensor:
        """BF16 logits [requests, vocabulary] of every request's last row; its latents go into ``cache``."""
        with span("other", "embedding"):
            x = self._embedding[batch.tokens]
            cos_sin = self._rope[batch.positions]
        for index, layer in enumerate(self._layers):
            x = layer.attend(x, cos_sin, batch, cache.latents[index])
            x, counts = layer.feed(x)
            self.expert_tokens = [a + b for a, b in zip(self.expert_tokens, counts)]
        with span("other", "last_rows"):
            x = x[[segment.end - 1 for segment in batch.segments]]
        with span("norm", "norm"):
            x = rms_norm(x, self._norm, self.shape.norm_eps)
        logits: torch.Tensor = self._lm_head(x)
        return logits

    def dispatched(self) -> Dict[str, Optional[str]]:
        """The kernel that serves each linear, by calling it once; None where only a profiler can tell."""
        found, backend = {}, self.loader.backend
        for call in [c for layer in self._layers for c in layer.linears] + [self._lm_head]:
            backend.forget_dispatched()
            row = torch.ones((1, call.k), dtype=torch.bfloat16)
            if isinstance(call, Experts):
                rows: Any = quantised_rows(backend, row) if self.loader.quantization else row
                call(rows, torch.tensor([1] + [0] * (call.experts - 1)))
            else:
                call(row)
            found[call.name] = backend.dispatched(call.operator)
        return found


class _Layer:
    """Attention and experts, each with its norm in front and a residual behind."""

    def __init__(self, shape: ModelShape, loader: Loader, name: str) -> None:
        self._shape, self._name = shape, name
        hidden, wide = shape.hidden, shape.heads * shape.head_dim
        self._norms = {
            part: loader.gain(f"{name}.{part}", size)
            for part, size in (
                ("attention_norm", hidden),
                ("q_norm", shape.q_lora),
                ("kv_norm", shape.head_dim),
                ("ffn_norm", hidden),
            )
        }
        self._wq_a = linear(loader, f"{name}.wq_a", hidden, shape.q_lora)
        self._wkv = linear(loader, f"{name}.wkv", hidden, shape.head_dim)
        self._wq_b = linear(loader, f"{name}.wq_b", shape.q_lora, wide)
        per_group = (shape.o_groups, wide // shape.o_groups, shape.o_lora)
        self._wo_a = loader.host(f"{name}.wo_a", per_group)
        self._wo_b = FloatLinear(loader, f"{name}.wo_b", shape.o_groups * shape.o_lora, hidden)
        self._gate = FloatLinear(loader, f"{name}.gate", hidden, shape.experts, "router", None)
        inner = shape.expert_hidden
        self._w13 = Experts(loader, f"{name}.w13", (shape.experts, hidden, 2 * inner))
        self._w2 = Experts(loader, f"{name}.w2", (shape.experts, inner, hidden))
        self._gate_up = linear(loader, f"{name}.shared_gate_up", hidden, 2 * inner, "expert")
        self._down = linear(loader, f"{name}.shared_down", inner, hidden, "expert")
        self._backend = loader.backend
        self._quantises = loader.quantization is not None

    @property
    def linears(self) -> List[Any]:
        """Everything that is loaded into a format and multiplied by an operator with a name."""
        dense = [self._wq_a, self._wkv, self._wq_b, self._wo_b, self._gate]
        return [*dense, self._w13, self._w2, self._gate_up, self._down]

    def attend(
        self, x: torch.Tensor, cos_sin: torch.Tensor, batch: Batch, latents: torch.Tensor
    ) -> torch.Tensor:
        """``x`` plus attention over every request's own context, new rows included."""
        shape = self._shape
        normed = self._normed(x, "attention_norm")
        q = self._wq_b(self._normed(self._wq_a(normed), "q_norm"))
        latent = self._normed(self._wkv(normed), "kv_norm")
        with span("attention", f"{self._name}.attention"):
            q = rotated(q.view(len(x), shape.heads, shape.head_dim), cos_sin)
            latents[batch.slots] = rotated(latent.view(len(x), 1, shape.head_dim), cos_sin)[:, 0]
            parts = [attention(q[s.start : s.end], latents[s.slots]) for s in batch.segments]
            mixed = torch.cat(parts).view(len(x), shape.o_groups, -1)
        with span("dense", f"{self._name}.wo_a"):
            low = torch.bmm(mixed.transpose(0, 1), self._wo_a).transpose(0, 1).reshape(len(x), -1)
        return self._residual(x, self._wo_b(low), "attention")

    def feed(self, x: torch.Tensor) -> Tuple[torch.Tensor, List[int]]:
        """``x`` plus routed and shared experts, and the rows that every routed expert had."""
        normed = self._normed(x, "ffn_norm")
        logits = self._gate(normed)
        with span("router", f"{self._name}.top_k"):
            chosen, share = route(logits, self._shape.experts_per_token, self._shape.routed_scale)
        rows: Any = normed
        if self._quantises:
            with span("quant", f"{self._name}.dispatch"):
                rows = quantised_rows(self._backend, normed)
        with span("dispatch", f"{self._name}.dispatch"):
            rows, order, counts = dispatch(rows, chosen, self._shape.experts)
        y = self._activated(self._w13(rows, counts), f"{self._name}.activation")
        if self._quantises:
            with span("quant", f"{self._name}.w2"):
                y = quantised_rows(self._backend, y)
        y = self._w2(y, counts)
        with span("combine", f"{self._name}.combine"):
            y = combine(y, order, share)
        shared = self._down(self._activated(self._gate_up(normed), f"{self._name}.shared_activation"))
        with span("combine", f"{self._name}.shared"):
            y = y + shared
        return self._residual(x, y, "ffn"), counts.tolist()

    def _normed(self, x: torch.Tensor, part: str) -> torch.Tensor:
        with span("norm", f"{self._name}.{part}"):
            return rms_norm(x, self._norms[part], self._shape.norm_eps)

    def _activated(self, x: torch.Tensor, part: str) -> torch.Tensor:
        with span("expert", part):
            return swiglu(x, self._shape.swiglu_limit)

    def _residual(self, x: torch.Tensor, change: torch.Tensor, part: str) -> torch.Tensor:
        with span("residual", f"{self._name}.{part}"):
            return x + change
