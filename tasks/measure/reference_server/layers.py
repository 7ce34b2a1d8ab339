"""What is no linear: norm, rotary position, attention, routing, dispatch, combine.

All of it computes in float32 and rounds to BF16 once, at its end.
"""

from __future__ import annotations

from typing import Any, Tuple

import torch
from torch.nn import functional


def rms_norm(x: torch.Tensor, gain: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean x² + eps) · gain over the last dimension."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * gain.float()).to(torch.bfloat16)


def rope_table(context_tokens: int, rope_dim: int, theta: float) -> torch.Tensor:
    """float32 [positions, 2, rope_dim / 2]: cosine and sine of position · theta^(-2i / rope_dim)."""
    frequency = theta ** (-torch.arange(0, rope_dim, 2, dtype=torch.float64) / rope_dim)
    angle = torch.arange(context_tokens, dtype=torch.float64)[:, None] * frequency
    return torch.stack([angle.cos(), angle.sin()], 1).float()


def rotated(x: torch.Tensor, cos_sin: torch.Tensor) -> torch.Tensor:
    """``x`` [T, heads, D], its last 2 · pairs dimensions turned pair by pair; ``cos_sin`` [T, 2, pairs]."""
    pairs = cos_sin.shape[-1]
    cos, sin = cos_sin[:, None, 0], cos_sin[:, None, 1]
    turned = x[..., -2 * pairs :].float().unflatten(-1, (pairs, 2))
    even, odd = turned[..., 0], turned[..., 1]
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)
    return torch.cat([x[..., : -2 * pairs], turned.to(x.dtype)], -1)


def attention(q: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
    """BF16 [t, heads, D]: the last t rows of a context attend to ``latents`` [L, D], key and value in one.

    Every request is computed for itself, so its result does not depend on who else is in the batch.
    """
    rows, heads, size = q.shape
    context = latents.float()
    scores = torch.bmm(q.float().view(1, -1, size), context.t()[None])[0] * size**-0.5
    if rows > 1:
        positions = torch.arange(len(context))
        seen = positions <= positions[-rows:, None]
        scores = scores.masked_fill(~seen.repeat_interleave(heads, 0), float("-inf"))
    mixed = torch.bmm(scores.softmax(-1)[None], context[None])[0]
    return mixed.view(rows, heads, size).to(torch.bfloat16)


def route(logits: torch.Tensor, count: int, scale: float) -> Tuple[torch.Tensor, torch.Tensor]:
    """The ``count`` best experts of every token and their float32 shares, which add up to ``scale``."""
    affinity = functional.softplus(logits.float()).sqrt()
    best, chosen = affinity.topk(count, -1)
    return chosen, best / best.sum(-1, keepdim=True) * scale


def dispatch(rows: Any, chosen: torch.Tensor, experts: int) -> Tuple[Any, torch.Tensor, torch.Tensor]:
    """Rows (or INT8 rows with scales) sorted by expert, that order, and the int64 rows of every expert."""
    flat = chosen.flatten()
    order = flat.argsort(stable=True)
    source = order // chosen.shape[-1]
    moved = tuple(part[source] for part in rows) if isinstance(rows, tuple) else rows[source]
    return moved, order, torch.bincount(flat, minlength=experts)


def combine(y: torch.Tensor, order: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """BF16 [T, N]: the experts' rows back with their tokens, weighted and added in the order of choice."""
    back = torch.empty_like(y)
    back[order] = y
    return (back.view(*share.shape, -1).float() * share[..., None]).sum(1).to(torch.bfloat16)


def swiglu(x: torch.Tensor, limit: float) -> torch.Tensor:
    """BF16 [rows, N / 2]: silu(gate) · up, the gate cut above ``limit`` and up to ±``limit``."""
    gate, up = x.float().chunk(2, -1)
    return (functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)).to(torch.bfloat16)
