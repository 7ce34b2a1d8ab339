"""What a tiling key says by itself: StreamK, unified-buffer template, AIV:AIC ratio.

Only statements that hold whatever the chip and version are made here; where the same digits mean different
things on two chips (QuantBatchMatmulV3 below 256), nothing is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

# DynamicQuant on NpuArch 2201: key → template, in the words of the predictor's branches.
_DYNAMIC_QUANT_2201 = {
    0: "single_buffer",
    1: "single_buffer",
    2: "double_buffer",
    3: "double_buffer",
    6: "long_row_split",
    7: "grouped",
    8: "grouped",
    10: "multi_row",
    100: "special_last_dim",
}
_DYNAMIC_QUANT_3510 = {(0, 1): "full_load_double_buffer", (0, 0): "full_load", (1, 1): "large_shape"}
_LARGE_MULTICORE = 12
# GroupedMatmul packs its template arguments; bit 35 starts the two bits of the ratio, keys below 2^24 are
# older.
_GMM_RATIO_BIT = 35
_GMM_PACKED_FROM = 1 << 24
_MATMUL_MODEL_BIT = 12
_MATMUL_STREAM_K = 1


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """Columns that follow from a key; None where the key does not say."""

    stream_k: bool | None = None
    ub_template: str | None = None
    aiv_aic_ratio: str | None = None


@lru_cache(maxsize=4096)
def read_tiling_key(op_type: str, key: str, decoded_size_bytes: int | None = None) -> KeyFacts:
    """Facts in ``key`` (decimal digits) of ``op_type``.

    ``decoded_size_bytes`` is the size of the tiling data where a layout was found: MatMulV3's key has the
    meaning used here only with the tiling data of NpuArch 3510.
    """
    number = int(key)
    if op_type in ("DynamicQuant", "DynamicQuantV2"):
        return KeyFacts(ub_template=_dynamic_quant_template(op_type, number))
    if op_type == "GroupedMatmul" and number >= _GMM_PACKED_FROM:
        ratio = number >> _GMM_RATIO_BIT & 3
        return KeyFacts(aiv_aic_ratio=f"{ratio}:1" if ratio < 3 else None)
    if op_type == "MatMulV3" and decoded_size_bytes is not None:
        return KeyFacts(stream_k=(number >> _MATMUL_MODEL_BIT & 15) == _MATMUL_STREAM_K)
    return KeyFacts()


def _dynamic_quant_template(op_type: str, key: int) -> str | None:
    if op_type == "DynamicQuant" or key < 9:
        return _DYNAMIC_QUANT_2201.get(key)
    for smooth_bit in (5, 4):  # CANN 8.5.0 has one bit less for the mode; its keys are all below 64
        if smooth_bit == 4 and key >= 64:
            continue
        mode = key >> 1 & ((1 << (smooth_bit - 1)) - 1)
        symmetric = key >> (smooth_bit + 1) & 1
        if not symmetric:
            continue
        if mode == _LARGE_MULTICORE:
            return "large_multicore"
        return _DYNAMIC_QUANT_3510.get((mode, key & 1))
    return None
