"""The exact product of INT8 matrices with INT32 accumulation, by the fastest routine that is exact here."""

from __future__ import annotations

from typing import Optional

import torch

FLOAT32_EXACT_K = 1024
"""128 · 128 · 1024 = 2**24: so many products add up exactly in float32, whatever their order."""

INT_MM = "int_mm"
FLOAT32_CHUNKS = "float32_chunks"

_route: Optional[str] = None


def route() -> str:
    """Name of the routine in use: ``int_mm``, or ``float32_chunks`` where the former is not exact.

    Without VNNI a library may add pairs of products in saturating INT16, so exactness is tried, not assumed.
    """
    global _route
    if _route is None:
        _route = INT_MM if _int_mm_is_exact() else FLOAT32_CHUNKS
    return _route


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """INT32 [M, N] = INT8 ``x`` [M, K] · INT8 ``w`` [K, N], exact for K up to 2**17."""
    if route() == INT_MM:
        return torch._int_mm(x, w)
    return float32_chunks(x, w)


def float32_chunks(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The same product from float32 products over pieces of K that are short enough to be exact."""
    total = torch.zeros((x.shape[0], w.shape[1]), dtype=torch.int32)
    for start in range(0, x.shape[1], FLOAT32_EXACT_K):
        piece = slice(start, start + FLOAT32_EXACT_K)
        total += torch.mm(x[:, piece].float(), w[piece].float()).to(torch.int32)
    return total


def _int_mm_is_exact() -> bool:
    """Try the routine where saturation would show: extremes of both signs, in shapes of every path."""
    for m, n in ((1, 32), (17, 32), (1, 40), (17, 40)):
        x = torch.full((m, 256), 127, dtype=torch.int8)
        w = torch.full((256, n), 127, dtype=torch.int8)
        x[:, ::3] = -128
        w[:, ::2] = -128
        try:
            if not torch.equal(torch._int_mm(x, w), float32_chunks(x, w)):
                return False
        except (AttributeError, RuntimeError):
            return False
    return True
