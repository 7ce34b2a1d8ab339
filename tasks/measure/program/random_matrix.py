"""Seeded random matrices, made as fast as memory allows: their bits come straight from the generator."""

from __future__ import annotations

import hashlib
import math
from typing import Any, Sequence

import torch

DTYPES = {"int8": torch.int8, "bfloat16": torch.bfloat16, "float16": torch.float16}
ITEM_SIZE_BYTES = {"int8": 1, "bfloat16": 2, "float16": 2}

_SIGN_AND_MANTISSA = {"bfloat16": 0x807F, "float16": 0x83FF}
_ONE_HALF = {"bfloat16": 0x3F00, "float16": 0x3800}


def random_matrix(dtype: str, shape: Sequence[int], seed: int) -> torch.Tensor:
    """Contiguous matrix: INT8 over the whole range, floating of both signs with magnitude in [0.5, 1)."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.empty(-(-size_bytes(dtype, shape) // 8), dtype=torch.int64)
    words.random_(-(2**63), None, generator=generator)
    if dtype != "int8":
        words.bitwise_and_(_four_times(_SIGN_AND_MANTISSA[dtype]))
        words.bitwise_or_(_four_times(_ONE_HALF[dtype]))
    return words.view(DTYPES[dtype])[: math.prod(shape)].view(*shape)


def size_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a matrix without padding."""
    return math.prod(shape) * ITEM_SIZE_BYTES[dtype]


def seed_of(*parts: Any) -> int:
    """A 63-bit seed that depends on every part, the same on every machine."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _four_times(word: int) -> int:
    """A 16-bit pattern repeated over a signed 64-bit word."""
    value = word * 0x0001_0001_0001_0001
    return value - 2**64 if value >= 2**63 else value
