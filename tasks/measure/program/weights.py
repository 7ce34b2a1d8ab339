"""Weights of the points: made quickly, loaded as serving loads them, rotated so that no cache keeps them.

A weight is made once as contiguous ND [K, N] (or [E, K, N]); every copy of the rotation is loaded from it on
its own: cast to the requested format, or copied. Sets of copies are kept, least recently used last, up to a
limit in bytes, because the points of a process share few weights.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Tuple

import torch
from random_matrix import random_matrix, seed_of, size_bytes

FORMAT_NAMES = {2: "ND", 29: "FRACTAL_NZ"}
ACL_FORMAT_FRACTAL_NZ = 29
SETS_LIMIT_BYTES = 1_200_000_000
DISABLE_VARIABLE = "SGLANG_NPU_DISABLE_ACL_FORMAT_WEIGHT"


class WeightKey(NamedTuple):
    """What tells one weight of a process from another."""

    dtype: str
    shape: Tuple[int, ...]
    requested_format: Optional[str]
    transposed: bool


class WeightSet(NamedTuple):
    """Copies of one weight in rotation order, and the format that each was proved to have."""

    copies: List[torch.Tensor]
    formats: List[str]
    size_bytes: int


class Weights:
    """All weights of one process. ``rotation_bytes`` 0 means one copy, which stays warm.

    ``place`` puts a tensor on the device; a tensor that is there already comes back as it is.
    """

    def __init__(self, seed: int, rotation_bytes: int, place: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._seed = seed
        self._place = place
        self._rotation_bytes = rotation_bytes
        self._sets: "OrderedDict[WeightKey, WeightSet]" = OrderedDict()

    def get(self, point: Mapping[str, Any]) -> WeightSet:
        """The copies for ``point``: at least ``rotation_bytes`` in all, each proved by ``get_npu_format``."""
        shape: Tuple[int, ...] = (point["k"], point["n"])
        if point.get("local_experts") is not None:
            shape = (point["local_experts"], *shape)
        key = WeightKey(
            point["dtype_w"], shape, point.get("weight_format_requested"), bool(point.get("transposed_w"))
        )
        if key in self._sets:
            self._sets.move_to_end(key)
            return self._sets[key]
        self._make_room(key)
        self._sets[key] = self._load(key)
        return self._sets[key]

    def _load(self, key: WeightKey) -> WeightSet:
        source = random_matrix(key.dtype, key.shape, seed_of(self._seed, *key))
        copy_bytes = size_bytes(key.dtype, key.shape)
        count = max(1, -(-self._rotation_bytes // copy_bytes))
        copies = [load(source, key, self._place) for _ in range(count - 1)]
        copies.append(load(source, key, self._place, last=True))
        formats = [FORMAT_NAMES[torch.ops.npu.get_npu_format(copy)] for copy in copies]
        return WeightSet(copies, formats, count * copy_bytes)

    def _make_room(self, key: WeightKey) -> None:
        source_bytes = size_bytes(key.dtype, key.shape)
        needed = source_bytes + max(self._rotation_bytes, source_bytes)
        while self._sets and sum(s.size_bytes for s in self._sets.values()) + needed > SETS_LIMIT_BYTES:
            self._sets.popitem(last=False)


def load(
    source: torch.Tensor, key: WeightKey, place: Callable[[torch.Tensor], torch.Tensor], last: bool = False
) -> torch.Tensor:
    """One copy of ``source`` as the serving path would hold it after loading.

    FRACTAL_NZ only where it is asked for, not switched off by the environment, and the shape is aligned (K to
    16; N to 32 for INT8, to 16 for BF16 and FP16): the serving path keeps ND otherwise. ``last`` may use
    ``source`` itself.
    """
    aligned = source.shape[-2] % 16 == 0 and source.shape[-1] % (32 // source.element_size()) == 0
    switched_off = os.environ.get(DISABLE_VARIABLE, "").lower() in ("1", "true", "yes", "y")
    if key.requested_format == "FRACTAL_NZ" and aligned and not switched_off:
        if key.transposed:
            raise ValueError("a transposed view has no FRACTAL_NZ: transposed_w goes with ND")
        return torch.ops.npu.npu_format_cast(place(source), ACL_FORMAT_FRACTAL_NZ)
    if key.transposed:
        return place(source.transpose(-1, -2).contiguous()).transpose(-1, -2)
    placed = place(source)
    return placed if last or placed is not source else placed.clone()
