"""Host tiling of QuantBatchMatmulV3 on NpuArch 3510 (950): int8, scales per channel and token, bfloat16 out.

Restates ops-nn's arch35 tiling. The first capable template wins; for this kind of call that is the Tensor-API
template (MIX_BASIC_API, CANN 9.2 with asc-devkit 9.1 or newer, NZ weight) or MIX_ASW. StreamK needs a
per-group or per-tensor scale and is never reached. Tiling data is 64 bytes for the former, 96 words for
the latter.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import IntArray, align_up, ceil_div, ints, where
from tilewatch.tasks.predict.arithmetic.tiling_keys import KeyLayout
from tilewatch.tasks.predict.calls import NZ, Points, QuantMatmulCall
from tilewatch.tasks.predict.environment import CannVersion, Platform
from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.predict.quant_matmul.dav_3510.base import Base, base_block, scored_block
from tilewatch.tasks.predict.quant_matmul.dav_3510.windows import Windows, windows
from tilewatch.tasks.predict.records import TWO_TO_ONE, Decisions, Outcome, constants

KEY = KeyLayout(("ATRANS", 2), ("BTRANS", 2), ("BATCHMODE", 4), ("KERNELTYPE", 8), ("APILEVEL", 2))
VECTOR_EPILOGUE, VECTOR_EPILOGUE_FULL_LOAD_A = 2, 3
TENSOR_API_LEVEL = 2
TYPE_CODE = {None: 3, "int32": 3, "bfloat16": 27, "float32": 0}
BYTES = {"bfloat16": 2, "float32": 4, "int32": 4}
L1_HALF_L0 = 32768

_DEVKIT = "an asc-devkit older than 9.1.0 has no Tensor API and takes mix_asw; its version decides"
OUTCOMES = (
    Outcome(
        "mix_asw", "ND weight, or NZ without the Tensor API: adaptive sliding window; StreamK unreachable"
    ),
    Outcome("mix_asw_full_load_a", "as mix_asw, and a row block of A stays in L1 for the whole of K"),
    Outcome(
        "mix_basic_api", "NZ weight and Tensor API: scored base block; StreamK unreachable", None, _DEVKIT
    ),
    Outcome("mix_basic_api_full_load_a", "as mix_basic_api, a row block of A stays in L1", None, _DEVKIT),
)
MIX_ASW_CONSTANTS = {
    **dict.fromkeys((f"batch{matrix}{axis}" for matrix in "ABC" for axis in ("", "1", "2", "3", "4")), 1),
    "isPertoken": 1, "stepM": 1, "stepN": 1, "dbL0A": 2, "dbL0B": 2,
    **dict.fromkeys((
        "singleCoreBatch", "isPerTensor", "isDoubleScale", "biasThreeDim", "needUbBuffer", "realSingleCoreM",
        "realSingleCoreN", "ubSize", "isMClash", "isNClash", "groupSizeM", "groupSizeN", "groupSizeK",
        "transLength", "iterateOrder", "shareMode", "shareL1Size",
        "shareL0CSize", "shareUbSize", "batchM", "batchN", "singleBatchM", "singleBatchN",
        "depthAL1CacheUB", "depthBL1CacheUB", "mTileCntL2", "nTileCntL2", "mTileBlock", "nTileBlock",
        "calOrder", "isBasicTiling",
    ), 0),
}  # fmt: skip
CACHE_WORDS = ("l2CacheDisable", "reserved")
MIX_BASIC_CONSTANTS = {
    "x1QuantMode": 4, "x2QuantMode": 2,
    **dict.fromkeys((
        "scaleKL1", "groupSizeM", "groupSizeN", "groupSizeK", "reserved0", "reserved1", "reserved2",
    ), 0),
}  # fmt: skip


def tile(call: QuantMatmulCall, at: Points, platform: Platform, cann: CannVersion) -> Decisions:
    """Tiling of ``call`` at every point; block dim counts cube cores, each with two vector cores."""
    if platform.vector_cores != 2 * platform.cube_cores:
        cores = f"{platform.cube_cores} cube and {platform.vector_cores} vector cores"
        raise PredictError("vector_cores", f"{cores}: host tiling fails unless the ratio is 1:2")
    tensor_api = (
        cann.quant_matmul_tensor_api
        and call.weight_format == NZ
        and not call.transpose_x
        and call.bias_dtype != "int32"
    )
    l0_bytes = min(platform.l0a_bytes, platform.l0b_bytes)
    base = base_block(call, at, platform.cube_cores, l0_bytes)
    if tensor_api:
        base = scored_block(call, at, base, platform.cube_cores, l0_bytes, platform.l0c_bytes)
    cut = windows(call, at, base, platform.cube_cores, platform.l1_bytes, tensor_api)
    base = replace(base, m=cut.base_m)
    template = _tensor_api_fields if tensor_api else _window_fields
    steps = template(call, at, platform, base, cut) | {
        "mTailTile": cut.tail_tile[0], "nTailTile": cut.tail_tile[1],
        "mBaseTailSplitCnt": cut.edge_splits[0], "nBaseTailSplitCnt": cut.edge_splits[1],
        "mTailMain": cut.edge_main[0], "nTailMain": cut.edge_main[1],
        "dbL0C": where(8 * base.m * base.n <= platform.l0c_bytes, 2, 1),
    }  # fmt: skip
    outcome = ints(cut.full_load_a) + 2 * tensor_api
    return Decisions(
        columns={
            "tiling_key": _tiling_key(call, cut, tensor_api),
            "block_dim": cut.used_cores,
            "used_core_num": cut.used_cores,
            "base_m": base.m,
            "base_n": base.n,
            "base_k": base.k,
            "m_cnt": cut.rows,
            "n_cnt": cut.columns,
            "stream_k": np.zeros_like(at.m),
            "aiv_aic_ratio": np.full_like(at.m, TWO_TO_ONE),
            "rounds": cut.rounds,
        },
        fields=steps | _restated(call, at, tensor_api, cann),
        outcome=outcome,
        outcomes=OUTCOMES,
        compared={name: values for name, values in steps.items() if name not in FOLLOW_SHAPE},
    )


FOLLOW_SHAPE = ("singleCoreM", "singleCoreN", "ubCalcM")


def _tiling_key(call: QuantMatmulCall, cut: Windows, tensor_api: bool) -> IntArray:
    return KEY.compose(
        ATRANS=call.transpose_x,
        BTRANS=call.transpose_w,
        BATCHMODE=int(tensor_api),
        KERNELTYPE=where(cut.full_load_a, VECTOR_EPILOGUE_FULL_LOAD_A, VECTOR_EPILOGUE),
        APILEVEL=TENSOR_API_LEVEL * tensor_api,
    )


def _l1_steps(
    call: QuantMatmulCall, at: Points, platform: Platform, base: Base, cut: Windows
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """stepKa, stepKb, depthA1, depthB1: how much of K stays in L1, int8 on both sides."""
    epilogue = BYTES[call.scale_dtype] + (BYTES[call.bias_dtype] if call.bias_dtype else 0)
    room = platform.l1_bytes - 2 * base.n * epilogue
    whole = ceil_div(at.k, base.k)

    def step(side: IntArray) -> IntArray:
        fitting = room // 2 // (side * base.k) // 2
        return where(fitting * base.k > at.k, whole, fitting)

    a, b = step(base.m), step(base.n)
    a, b = where(a > b, a // np.maximum(b, 1) * b, a), where(b > a, b // np.maximum(a, 1) * a, b)
    rest = room - base.m * align_up(at.k, 32)
    factor = where((base.k < 128) & call.transpose_w, ceil_div(128, base.k), 1)
    block = base.n * base.k * factor
    half = where(rest >= 2 * L1_HALF_L0, L1_HALF_L0, rest // 2)
    factor = factor * ceil_div(half, block)
    factor = where((factor == 1) & (at.k > base.k) & (rest > 2 * block), 2, factor)
    full = cut.full_load_a
    return (
        where(full, whole, a),
        where(full, factor, b),
        where(full, whole, 2 * a),
        where(full, 2 * factor, 2 * b),
    )


def _window_fields(
    call: QuantMatmulCall, at: Points, platform: Platform, base: Base, cut: Windows
) -> dict[str, IntArray]:
    step_a, step_b, depth_a, depth_b = _l1_steps(call, at, platform, base, cut)
    room = platform.ub_bytes - BYTES[call.scale_dtype] * base.n - 2 * (32 - 4)
    rows = room // (2 * (4 + 2) * base.n + 2 * 4)
    rows = np.minimum(np.minimum(rows, ceil_div(base.m, 2)), ceil_div(at.m, 2))
    return {
        "stepKa": step_a, "stepKb": step_b, "depthA1": depth_a, "depthB1": depth_b,
        "singleCoreM": np.minimum(at.m, base.m), "singleCoreN": np.minimum(at.n, base.n),
        "ubCalcM": rows, "ubCalcN": base.n,
    }  # fmt: skip


def _tensor_api_fields(
    call: QuantMatmulCall, at: Points, platform: Platform, base: Base, cut: Windows
) -> dict[str, IntArray]:
    step_a, step_b, _, _ = _l1_steps(call, at, platform, base, cut)
    full = cut.full_load_a
    shared = np.minimum(step_a, step_b)
    buffered = where(full, step_b, shared) * base.k
    epilogue = BYTES[call.scale_dtype] + (BYTES[call.bias_dtype] if call.bias_dtype else 0)
    used = 4 * base.n * buffered + 2 * base.n * epilogue
    used = used + where(full, base.m * align_up(at.k, 32), 4 * base.m * buffered)
    four = used < platform.l1_bytes
    inner = at.k if call.transpose_w else at.n
    return {
        "kAL1": where(four, shared, step_a) * base.k,
        "kBL1": where(four, shared, step_b) * base.k,
        "nBufferNum": where(four, 4, 2),
        "weightMustHitL2": ints((base.m < at.m) | (inner % 128 != 0)),
    }


def _restated(call: QuantMatmulCall, at: Points, tensor_api: bool, cann: CannVersion) -> dict[str, IntArray]:
    """Words of the tiling data that only repeat the call or never change."""
    bias = {"isBias": int(call.bias_dtype is not None), "biasDtype": TYPE_CODE[call.bias_dtype]}
    if tensor_api:
        return {"m": at.m, "n": at.n, "k": at.k} | constants(MIX_BASIC_CONSTANTS | bias, len(at))
    shape = {"M": at.m, "N": at.n, "Ka": at.k, "Kb": at.k, "singleCoreK": at.k}
    added = dict.fromkeys(CACHE_WORDS, 0) if cann.quant_matmul_cache_words else {}
    return shape | constants(MIX_ASW_CONSTANTS | bias | added, len(at))
