"""Seeded random parameters: every arm starts from the same BF16 weights, whatever it makes of them."""

from __future__ import annotations

from typing import Tuple

import torch
from random_matrix import seed_of

INT8_MAX = 127


def weight(seed: int, name: str, shape: Tuple[int, ...]) -> torch.Tensor:
    """BF16 [..., K, N], normal with variance 1 / K; depends on ``seed``, ``name`` and ``shape`` alone."""
    generator = torch.Generator().manual_seed(seed_of(seed, name, shape))
    values = torch.empty(shape).normal_(0.0, shape[-2] ** -0.5, generator=generator)
    return values.to(torch.bfloat16)


def gain(seed: int, name: str, size: int) -> torch.Tensor:
    """BF16 [size] of an RMS norm, uniform in [0.75, 1.25)."""
    generator = torch.Generator().manual_seed(seed_of(seed, name, size))
    return torch.empty(size).uniform_(0.75, 1.25, generator=generator).to(torch.bfloat16)


def quantised(source: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    """INT8 [..., K, N] and BF16 scale [..., N] of a BF16 weight, symmetric by column.

    The scale is rounded to BF16 first, which can leave a column's largest value at 127.5 steps: cut to 127.
    """
    wide = source.float()
    scale = (wide.abs().amax(-2) / INT8_MAX).to(torch.bfloat16)
    steps = (wide / scale.float().unsqueeze(-2)).round_().clamp_(-INT8_MAX, INT8_MAX)
    return steps.to(torch.int8), scale
