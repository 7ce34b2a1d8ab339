"""Products of a matrix with a weight as it is stored: ND [K, N], or NZ column blocks [N1, K1·16, N0]."""

from __future__ import annotations

from typing import Optional

import int8_product
import torch

TILE_BLOCKS = 16
"""Column blocks of a floating NZ weight that are moved to ND at a time, in scratch, for one product."""


def scaled(
    x: torch.Tensor,
    stored: torch.Tensor,
    n: int,
    scale: torch.Tensor,
    pertoken_scale: Optional[torch.Tensor],
    dtype: torch.dtype,
) -> torch.Tensor:
    """[M, n] in ``dtype``: the exact INT8 product, scaled by column and by row in float32, cast once.

    ``x`` [M, K] and ``stored`` are INT8; ``scale`` [n] or [1] and ``pertoken_scale`` [M] are floating.
    """
    rows = pertoken_scale.float() if pertoken_scale is not None else None
    if stored.dim() == 2:
        values = int8_product.product(x, stored).to(torch.float32).mul_(scale.float())
        return (values if rows is None else values.mul_(rows[:, None])).to(dtype)
    blocks, _, width = stored.shape
    values = torch.empty((blocks, len(x), width), dtype=torch.float32)
    for index, block in enumerate(stored.unbind(0)):
        values[index] = int8_product.product(x, block[: x.shape[1]])
    columns = torch.zeros(blocks * width)
    columns[:n] = scale.float()
    values.mul_(columns.view(blocks, 1, width))
    if rows is not None:
        values.mul_(rows[None, :, None])
    return _side_by_side(values.to(dtype), n)


def floating(x: torch.Tensor, stored: torch.Tensor, n: int) -> torch.Tensor:
    """[M, n] = ``x`` [M, K] · ``stored`` in their own floating dtype.

    NZ blocks of 16 columns are too narrow for the library's product; a tile of them is moved to ND first.
    """
    if stored.dim() == 2:
        # ``out=`` is another operator than the one this may be serving: no recursion.
        return torch.mm(x, stored, out=x.new_empty((len(x), n)))
    blocks, _, width = stored.shape
    k = x.shape[1]
    out = x.new_empty((len(x), blocks * width))
    for first in range(0, blocks, TILE_BLOCKS):
        tile = stored[first : first + TILE_BLOCKS, :k].permute(1, 0, 2).reshape(k, -1)
        torch.mm(x, tile, out=out[:, first * width : first * width + tile.shape[1]])
    return out[:, :n]


def _side_by_side(values: torch.Tensor, n: int) -> torch.Tensor:
    """[M, n] from blocks [N1, M, N0]."""
    return values.permute(1, 0, 2).reshape(values.shape[1], -1)[:, :n]
