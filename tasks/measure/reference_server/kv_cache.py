"""The KV cache: one latent a token and layer in a fixed pool of slots, which requests borrow."""

from __future__ import annotations

from typing import List

import torch
from shape import ModelShape


class KvCache:
    """``capacity_tokens`` slots; a request reserves all that it can ever need before it runs."""

    def __init__(self, shape: ModelShape, capacity_tokens: int) -> None:
        self.capacity_tokens = capacity_tokens
        self.latents = torch.zeros((shape.layers, capacity_tokens, shape.head_dim), dtype=torch.bfloat16)
        self._free = list(range(capacity_tokens - 1, -1, -1))

    @property
    def free_tokens(self) -> int:
        """Slots that nobody holds."""
        return len(self._free)

    def reserve(self, tokens: int) -> List[int]:
        """Slots for ``tokens`` tokens. Raises MemoryError where fewer are free; the caller asks first."""
        if tokens > len(self._free):
            raise MemoryError(f"{tokens} slots asked for, {len(self._free)} free")
        taken = self._free[len(self._free) - tokens :]
        del self._free[len(self._free) - tokens :]
        return taken[::-1]

    def release(self, slots: List[int]) -> None:
        """Give slots back."""
        self._free.extend(slots[::-1])
