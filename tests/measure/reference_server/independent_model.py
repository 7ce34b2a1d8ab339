"""The reference server's model once more, by other means: float64 and integers in NumPy, no cache, no batch.

A whole sequence at once, every token sent through its experts on its own. It rounds where the server's
operators hand a tensor on (BF16, INT8) and nowhere else, so that what remains is the server's own arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def bf16(x: Array) -> Array:
    """``x`` rounded to BF16, half to even: the upper 16 bits of its float32."""
    bits = np.asarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


def per_token(x: Array) -> tuple[Array, Array]:
    """Integers and scale of every row, by float32: half of the largest value lies between two integers."""
    scale = (np.abs(x).max(-1, keepdims=True) / 127).astype(np.float32)
    return np.rint(x.astype(np.float32) / scale).astype(np.float64), scale.astype(np.float64)


def per_column(w: Array) -> tuple[Array, Array]:
    """Integers and BF16 scale of every column."""
    scale = bf16(np.abs(w).max(0) / 127)
    return np.clip(np.rint(w / scale), -127, 127), scale


class IndependentModel:
    """``weight`` and ``gain`` give a parameter by name and shape; ``int8`` quantises what W8A8 does."""

    def __init__(
        self, shape: Any, int8: bool, weight: Callable[..., Array], gain: Callable[..., Array]
    ) -> None:
        self._shape, self._int8, self._weight, self._gain = shape, int8, weight, gain

    def logits(self, tokens: list[int]) -> Array:
        """[len(tokens), vocabulary] for every position of the sequence."""
        s = self._shape
        x = self._weight("embedding", (s.vocabulary, s.hidden))[tokens]
        for index in range(s.layers):
            x = bf16(x + self._attention(f"layers.{index}", self._norm(f"layers.{index}.attention_norm", x)))
            normed = self._norm(f"layers.{index}.ffn_norm", x)
            x = bf16(x + np.stack([self._experts(f"layers.{index}", row[None])[0] for row in normed]))
        return bf16(self._norm("norm", x) @ self._weight("lm_head", (s.hidden, s.vocabulary)))

    def _norm(self, name: str, x: Array) -> Array:
        root = np.sqrt((x**2).mean(-1, keepdims=True) + self._shape.norm_eps)
        return bf16(x / root * self._gain(name, x.shape[-1]))

    def _linear(self, name: str, x: Array, n: int, expert: tuple[int, int] | None = None) -> Array:
        """``expert`` (index, count) takes one of the matrices that are kept together."""
        size = (x.shape[-1], n)
        w = self._weight(name, size) if expert is None else self._weight(name, (expert[1], *size))[expert[0]]
        if not self._int8:
            return bf16(x @ w)
        (steps, row_scale), (columns, column_scale) = per_token(x), per_column(w)
        return bf16(steps @ columns * column_scale * row_scale)

    def _attention(self, name: str, x: Array) -> Array:
        s, rows = self._shape, len(x)
        low = self._norm(f"{name}.q_norm", self._linear(f"{name}.wq_a", x, s.q_lora))
        q = self._linear(f"{name}.wq_b", low, s.heads * s.head_dim).reshape(rows, s.heads, s.head_dim)
        latent = self._norm(f"{name}.kv_norm", self._linear(f"{name}.wkv", x, s.head_dim))
        q, latent = self._turned(q.transpose(1, 0, 2)), self._turned(latent)
        scores = q @ latent.T / np.sqrt(s.head_dim)
        scores = np.where(np.tri(rows, dtype=bool), scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = bf16((shares / shares.sum(-1, keepdims=True)) @ latent).transpose(1, 0, 2)
        groups = mixed.reshape(rows, s.o_groups, -1)
        wo_a = self._weight(f"{name}.wo_a", (s.o_groups, groups.shape[-1], s.o_lora))
        low = np.concatenate([bf16(groups[:, g] @ wo_a[g]) for g in range(s.o_groups)], -1)
        return bf16(low @ self._weight(f"{name}.wo_b", (low.shape[-1], s.hidden)))

    def _turned(self, x: Array) -> Array:
        """Rotary position as a product of complex numbers, row number = position."""
        s, rows = self._shape, x.shape[-2]
        fixed, moving = x[..., : -s.rope_dim], x[..., -s.rope_dim :]
        speed = s.rope_theta ** (-np.arange(0, s.rope_dim, 2) / s.rope_dim)
        turned = (moving[..., ::2] + 1j * moving[..., 1::2]) * np.exp(1j * np.arange(rows)[:, None] * speed)
        pairs = np.stack([turned.real, turned.imag], -1).reshape(moving.shape)
        return np.concatenate([fixed, bf16(pairs)], -1)

    def _experts(self, name: str, row: Array) -> Array:
        s = self._shape
        affinity = np.sqrt(np.log1p(np.exp(bf16(row @ self._weight(f"{name}.gate", (s.hidden, s.experts))))))
        chosen = np.argsort(-affinity[0], kind="stable")[: s.experts_per_token]
        shares = affinity[0, chosen] / affinity[0, chosen].sum() * s.routed_scale
        routed = np.zeros((1, s.hidden))
        for expert, share in zip(chosen, shares, strict=True):
            one = (int(expert), s.experts)
            inner = self._swiglu(self._linear(f"{name}.w13", row, 2 * s.expert_hidden, one))
            routed += share * self._linear(f"{name}.w2", inner, s.hidden, one)
        inner = self._swiglu(self._linear(f"{name}.shared_gate_up", row, 2 * s.expert_hidden))
        return bf16(bf16(routed) + self._linear(f"{name}.shared_down", inner, s.hidden))

    def _swiglu(self, x: Array) -> Array:
        gate, up = np.split(x, 2, axis=-1)
        gate, up = np.minimum(gate, self._shape.swiglu_limit), np.clip(up, *_both(self._shape.swiglu_limit))
        return bf16(gate / (1 + np.exp(-gate)) * up)


def _both(limit: float) -> tuple[float, float]:
    return -limit, limit
