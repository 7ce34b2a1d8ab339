"""The shape of the tiny decoder: DeepSeek-V4's proportions, small enough for one core.

What stands for what: multi-query attention over one latent that is key and value, queries through a low rank,
output through a grouped low rank; routed experts by square root of softplus, and one shared expert. Left out:
hyper-connections, the compressors and the indexer, hash layers, multi-token prediction.
"""

from __future__ import annotations

from typing import NamedTuple


class ModelShape(NamedTuple):
    """Sizes of the model. K of a quantised linear is a multiple of 16, its N of 32: no weight stays ND."""

    layers: int = 3
    hidden: int = 1024
    q_lora: int = 256
    heads: int = 8
    head_dim: int = 128
    rope_dim: int = 32
    o_groups: int = 4
    o_lora: int = 128
    experts: int = 8
    experts_per_token: int = 2
    expert_hidden: int = 512
    vocabulary: int = 2048
    context_tokens: int = 2048
    rope_theta: float = 10000.0
    norm_eps: float = 1e-6
    swiglu_limit: float = 10.0
    routed_scale: float = 1.5
    eos_token: int = 0

    @property
    def kv_bytes_per_token(self) -> int:
        """One BF16 latent in every layer."""
        return self.layers * self.head_dim * 2
