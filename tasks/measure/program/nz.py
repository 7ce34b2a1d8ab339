"""FRACTAL_NZ in CPU memory: a tensor that keeps its logical shape while its bytes lie in NZ order.

A matrix [K, N] is cut into blocks of 16 rows by 32 bytes; N0 = 32 / itemsize columns (32 for int8, 16 for
bfloat16). Storage is [N1, K1, 16, N0] with N1 = ceil(N / N0), K1 = ceil(K / 16), zero padded; a batch stands
in front. Source of the layout: the FRACTAL_NZ shape in the constraints of npu_grouped_matmul_swiglu_quant_v2,
(E, N/32, K/16, 16, 32). As on the device, nothing but the format that goes with the storage tells NZ from ND.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

ACL_FORMAT_ND = 2
ACL_FORMAT_FRACTAL_NZ = 29
FORMAT_NAMES = {ACL_FORMAT_ND: "ND", ACL_FORMAT_FRACTAL_NZ: "FRACTAL_NZ"}

BLOCK_ROWS = 16
BLOCK_ROW_BYTES = 32


class _Stored(NamedTuple):
    """``alive`` keeps the address of the storage from being used again, without keeping its bytes."""

    alive: StorageWeakRef
    shape: Tuple[int, ...]


_nz_storages: Dict[int, _Stored] = {}


def format_of(tensor: torch.Tensor) -> int:
    """ACL format number of ``tensor``: 29 where its storage holds NZ, else 2 (ND)."""
    return ACL_FORMAT_FRACTAL_NZ if _address(tensor) in _nz_storages else ACL_FORMAT_ND


def columns_per_block(dtype: torch.dtype) -> int:
    """N0: columns of one block for ``dtype``."""
    return BLOCK_ROW_BYTES // int(dtype.itemsize)


def pack(weight: torch.Tensor) -> torch.Tensor:
    """A copy of an ND ``weight`` [..., K, N] in NZ, with the same logical shape. Padding is zero."""
    k, n = weight.shape[-2:]
    source = weight.reshape(-1, k, n)
    n0 = columns_per_block(weight.dtype)
    n1, k_padded = -(-n // n0), -(-k // BLOCK_ROWS) * BLOCK_ROWS
    padded = n1 * n0
    if padded != n or source.storage_offset() % 8 or not source.is_contiguous():
        source = torch.zeros((len(source), k, padded), dtype=weight.dtype)
        source[:, :, :n] = weight.reshape(-1, k, n)
    allocate = torch.empty if k_padded == k else torch.zeros
    stored = allocate((len(source), n1, k_padded, n0), dtype=weight.dtype)
    # Rows of a block are 32 bytes for every dtype: moving them as four int64 is five times faster.
    wide = source.view(torch.int64).view(len(source), k, n1, 4).permute(0, 2, 1, 3)
    stored.view(torch.int64)[:, :, :k].copy_(wide)
    strides = torch.empty(weight.shape, device="meta").stride()
    packed = stored.as_strided(weight.shape, strides)
    _remember(packed)
    return packed


def unpack(weight: torch.Tensor) -> torch.Tensor:
    """A copy of an NZ ``weight`` in ND."""
    k, n = weight.shape[-2:]
    stored = blocks(weight)
    flat = stored[:, :, :k].permute(0, 2, 1, 3).reshape(len(stored), k, -1)[:, :, :n]
    # A single column block lies as in ND; without a copy of its own it would still count as NZ.
    return flat.reshape(weight.shape).clone(memory_format=torch.contiguous_format)


def blocks(weight: torch.Tensor) -> torch.Tensor:
    """The bytes of an NZ ``weight`` as they lie: [batch, N1, K1·16, N0], no copy.

    Each [K1·16, N0] is one contiguous column block. Raises ValueError for a view of an NZ tensor: as on the
    device, its logical strides say nothing about its bytes.
    """
    known = _nz_storages.get(_address(weight))
    if known is None or known.shape != tuple(weight.shape) or weight.storage_offset():
        raise ValueError(f"not a whole FRACTAL_NZ tensor: shape {tuple(weight.shape)}, {weight.stride()}")
    k, n = weight.shape[-2:]
    n0 = columns_per_block(weight.dtype)
    n1, k_padded = -(-n // n0), -(-k // BLOCK_ROWS) * BLOCK_ROWS
    batch = weight.numel() // (k * n)
    shape = (batch, n1, k_padded, n0)
    return weight.as_strided(shape, (n1 * k_padded * n0, k_padded * n0, n0, 1))


def _remember(packed: torch.Tensor) -> None:
    for address in [a for a, stored in _nz_storages.items() if stored.alive.expired()]:
        del _nz_storages[address]
    _nz_storages[_address(packed)] = _Stored(StorageWeakRef(packed.untyped_storage()), tuple(packed.shape))


def _address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
