"""Host tiling of QuantBatchMatmulV3 on NpuArch 2201 (910B, 910C): int8, scales per channel and token.

Restates ops-nn's choice of template and the tiling data of its TBE template around the block search. The
Basic template's own blocks are not restated: where it is chosen the record says unknown.
Closed whitelists are taken as not matching, as they do not for the linears measured here.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import (
    UNSET,
    BoolArray,
    IntArray,
    align_up,
    ceil_div,
    ints,
    mask,
    where,
)
from tilewatch.tasks.predict.arithmetic.tiling_keys import KeyLayout
from tilewatch.tasks.predict.calls import ND, NZ, Points, QuantMatmulCall
from tilewatch.tasks.predict.environment import CannVersion, Platform
from tilewatch.tasks.predict.quant_matmul.dav_2201.problem import Result, problem
from tilewatch.tasks.predict.quant_matmul.dav_2201.search import search
from tilewatch.tasks.predict.quant_matmul.dav_2201.small_m import override
from tilewatch.tasks.predict.records import ONE_TO_ONE, Decisions, Outcome, constants

KEY = KeyLayout(("TRANS", 2), ("KERNEL_TEMPLATE_TYPE", 2), ("PERTOKEN", 1), ("OPTION_ATTRS", 2))
TBE, BASIC, OPTIMISED = 0, 1, 2
DECODE_ROWS = 256
OPTIMISED_WORKSPACE_BYTES = 50 * 1024 * 1024
TBE_CORES = (20, 24)
BASIC_SMALL = (512, 1024)
L2_SHARE = 0.8
L1_HELD_BYTES, L1_RELOADED_BYTES = 448 * 1024, 160 * 1024
SCALE_BYTES = {"bfloat16": 2, "float32": 4}
BIAS_BYTES = {"bfloat16": 2, "float32": 4}
TYPE_CODE = {None: 3, "int32": 3, "bfloat16": 27, "float32": 0}

_BANKS = "a runtime_kb or AOE tuning bank, or a closed whitelist, may override it; the tiling log decides"
_BASIC = "the Basic template's block choice is not restated; observe the tiling log"
OUTCOMES = (
    Outcome("tbe", "TBE template: block search, more rows than one base block a core", None, _BANKS),
    Outcome("tbe", "TBE template: block search; what a core holds is cut to 50 MiB over all", None, _BANKS),
    Outcome("tbe_optimised", "TBE template: block search, the rows fit one base block", None, _BANKS),
    Outcome("tbe_decode", "TBE template: block search, then the small-M decode rule", None, _BANKS),
    Outcome("basic", "Basic template: cube cores are neither 20 nor 24", None, _BASIC),
    Outcome("basic", "Basic template: M ≤ 16, 13000 ≤ K ≤ 18944 and N ≥ 1500 on 910B", None, _BASIC),
    Outcome(
        "basic",
        "Basic template: M above 256 and no side held whole in L1 pays",
        None,
        f"{_BASIC}; a closed whitelist that is asked first may take the TBE template instead",
    ),
)
PLAIN, CUT, OPT, DECODE, BASIC_CORES, BASIC_DEEP, BASIC_LARGE = range(len(OUTCOMES))
CONSTANTS = {
    **dict.fromkeys(("batchA", "batchB", "batchC", "singleCoreBatch", "isPertoken"), 1),
    **dict.fromkeys(("batchM", "batchN", "singleBatchM", "singleBatchN", "stepM", "stepN"), 1),
    "dbL0A": 2, "dbL0B": 2,
    **dict.fromkeys((f"batch{matrix}{axis}" for matrix in "ABC" for axis in "1234"), 0),
    **dict.fromkeys((
        "isPerTensor", "isDoubleScale", "biasThreeDim", "ubSize", "isMClash", "isNClash", "groupSizeM",
        "groupSizeN", "groupSizeK", "shareMode", "shareUbSize", "depthAL1CacheUB", "depthBL1CacheUB",
        "mTileCntL2", "nTileCntL2", "mTileBlock", "nTileBlock", "calOrder", "isBasicTiling", "mTailTile",
        "nTailTile", "mBaseTailSplitCnt", "nBaseTailSplitCnt", "mTailMain", "nTailMain",
    ), 0),
}  # fmt: skip
FOLLOW_SHAPE = (
    "M", "N", "Ka", "Kb", "singleCoreK", "realSingleCoreM", "singleCoreM", "ubCalcM", "needUbBuffer",
    "transLength", "shareL0CSize", "shareL1Size",
)  # fmt: skip


def tile(call: QuantMatmulCall, at: Points, platform: Platform, cann: CannVersion) -> Decisions:
    """Tiling of ``call`` at every point; block dim counts cube cores, each with one vector core."""
    template = _template(call, at, platform, cann)
    found = _searched(call, at, platform, template == PLAIN)
    base = (16 * found.m_l0, 16 * found.n_l0, 32 * found.k_l0)
    workspace = align_up(ceil_div(at.n, found.n_parts), base[1]) * base[0] * 4 * platform.cube_cores
    optimised = (at.m <= base[0]) & (workspace < OPTIMISED_WORKSPACE_BYTES)
    decode = _decode(call, at, cann, found, base[0], workspace) & ~optimised
    real = _single_core(call, at, found, base)
    used = np.minimum(ceil_div(at.m, real[0]) * ceil_div(at.n, real[1]), platform.cube_cores)
    single, shrunk = _within_workspace(real, base, used, optimised | decode)
    searched = np.select([optimised, decode, shrunk], [OPT, DECODE, CUT], PLAIN)
    outcome = where(template == PLAIN, searched, template)
    known = outcome < BASIC_CORES
    data = _tiling_data(at, found, base, real, single, optimised | decode)
    data |= _unified_buffer(call, at, platform, base, optimised | decode)
    shape = {"M": at.m, "N": at.n, "Ka": at.k, "Kb": at.k, "singleCoreK": at.k}
    bias = {"isBias": int(call.bias_dtype is not None), "biasDtype": TYPE_CODE[call.bias_dtype]}
    data = data | shape | constants(CONSTANTS | bias, len(at))
    columns = {
        "tiling_key": KEY.compose(
            TRANS=2 * call.transpose_x + call.transpose_w,
            KERNEL_TEMPLATE_TYPE=where(outcome <= CUT, TBE, OPTIMISED),
            PERTOKEN=1,
        ),
        "block_dim": used,
        "used_core_num": used,
        "base_m": base[0],
        "base_n": base[1],
        "base_k": base[2],
        "m_cnt": ceil_div(at.m, base[0]),
        "n_cnt": ceil_div(at.n, base[1]),
        "stream_k": np.zeros_like(at.m),
        "aiv_aic_ratio": np.full_like(at.m, ONE_TO_ONE),
        "rounds": ceil_div(real[0], base[0]) * ceil_div(real[1], base[1]),
    }
    own = {name: where(known, values, UNSET) for name, values in data.items()}
    return Decisions(
        columns={name: where(known, values, UNSET) for name, values in columns.items()},
        fields=own,
        outcome=outcome,
        outcomes=OUTCOMES,
        compared={n: v for n, v in own.items() if n not in FOLLOW_SHAPE and n not in CONSTANTS},
    )


def _searched(call: QuantMatmulCall, at: Points, platform: Platform, wanted: BoolArray) -> Result:
    """The search's result where it is asked for; ones elsewhere, which nothing reads."""
    found = Result(*(np.ones(len(at), dtype=np.int64) for _ in fields(Result)))
    chosen = np.flatnonzero(wanted)
    if len(chosen):
        best = search(problem(call, at, platform).take(chosen))
        for field in fields(Result):
            getattr(found, field.name)[chosen] = getattr(best, field.name)
    return override(call, at, platform, found)


def _template(call: QuantMatmulCall, at: Points, platform: Platform, cann: CannVersion) -> IntArray:
    """PLAIN for the TBE template or one of BASIC_…."""
    if call.x_format == NZ:
        return np.full(len(at), PLAIN)
    if platform.cube_cores not in TBE_CORES and cann.quant_matmul_basic_other_cores:
        return np.full(len(at), BASIC_CORES)
    small = (np.minimum(at.m, at.n) <= BASIC_SMALL[0]) & (np.maximum(at.m, at.n) <= BASIC_SMALL[1])
    deep = (at.m <= 16) & (at.k >= 13000) & (at.k <= 18944) & (at.n >= 1500)
    deep &= platform.name.startswith("Ascend910B")
    large = (at.m > DECODE_ROWS) & ~_held_whole(call, at, platform)
    return ints(np.select([small, deep, large], [PLAIN, BASIC_DEEP, BASIC_LARGE], PLAIN))


def _held_whole(call: QuantMatmulCall, at: Points, platform: Platform) -> BoolArray:
    """Where the TBE template gains by holding the smaller of M and N with all of K in L1 (M above 256).

    ops-nn, quant_batch_matmul_v3_basic_tiling.cpp, CheckNotFullLoadForMutliIterate, the same in all versions.
    """
    least, most = np.minimum(at.m, at.n), np.maximum(at.m, at.n)
    total_bytes = at.m * at.k + at.k * at.n + 2 * at.m * at.n
    shallow = mask((at.k < 1024) & (total_bytes <= platform.l2_bytes * L2_SHARE), len(at))
    depth = align_up(at.k, 32)
    held_bytes = align_up(least, 16) * depth
    held_bytes = where(mask(least < 512, len(at)), np.minimum(held_bytes, 128 * depth), held_bytes)
    by_rows = mask(at.m <= at.n, len(at))
    wide = mask((by_rows & (not call.transpose_w)) | (~by_rows & call.transpose_x), len(at))
    loads = ceil_div(most, platform.cube_cores * where(wide, 128, 64)) - 1
    of_rows, of_columns = at.m if call.transpose_x else at.k, at.k if call.transpose_w else at.n
    ragged = where(by_rows, of_rows, of_columns) % 128 != 0
    fits = (held_bytes <= L1_HELD_BYTES) & ((loads * held_bytes > L1_RELOADED_BYTES) | ragged)
    return mask(shallow | (least <= 256) | fits, len(at))


def _decode(
    call: QuantMatmulCall, at: Points, cann: CannVersion, found: Result, base_m: IntArray, workspace: IntArray
) -> BoolArray:
    layout = (call.weight_format, call.transpose_w) in ((NZ, False), (ND, True))
    if cann.quant_matmul_decode == "no" or not layout or call.bias_dtype is not None or call.transpose_x:
        return np.zeros(len(at), dtype=np.bool_)
    allowed = (workspace <= OPTIMISED_WORKSPACE_BYTES) | (cann.quant_matmul_decode == "unlimited")
    whole = (at.k % 64 == 0) & (at.n % 64 == 0) & (at.m <= DECODE_ROWS)
    return mask(whole & allowed & (ceil_div(at.m, found.m_parts) <= base_m), len(at))


def _single_core(
    call: QuantMatmulCall, at: Points, found: Result, base: tuple[IntArray, IntArray, IntArray]
) -> tuple[IntArray, IntArray]:
    """Rows and columns one core gets."""
    unit_m = where(mask(call.transpose_x, len(at)) & (at.m >= base[0]), base[0], 16)
    unit_n = where(mask(not call.transpose_w, len(at)) & (at.n >= base[1]), base[1], 16)
    return align_up(ceil_div(at.m, found.m_parts), unit_m), align_up(ceil_div(at.n, found.n_parts), unit_n)


def _within_workspace(
    real: tuple[IntArray, IntArray],
    base: tuple[IntArray, IntArray, IntArray],
    used: IntArray,
    small_m: BoolArray,
) -> tuple[tuple[IntArray, IntArray], BoolArray]:
    """singleCoreM and singleCoreN, and where they had to be cut to 50 MiB over all cores.

    The small-M templates take one base block. Elsewhere one side is cut to one where both hold several. Past
    50 MiB rows are divided first, down to one base block, then columns.
    """
    loops_m, loops_n = ceil_div(real[0], base[0]), ceil_div(real[1], base[1])
    both = (real[0] > base[0]) & (real[1] > base[1])
    by_m = both & (loops_m <= loops_n)
    cut = where(by_m, base[0], real[0]), where(both & ~by_m, base[1], real[1])
    rows = np.maximum(cut[0], base[0])
    columns = where(small_m, align_up(cut[1], base[1]), np.maximum(cut[1], base[1]))
    over = rows * columns * 4 * used > OPTIMISED_WORKSPACE_BYTES
    limit = OPTIMISED_WORKSPACE_BYTES // used // 4
    fewer = np.maximum(ceil_div(rows, 16) // ceil_div(rows * columns, limit) * 16, base[0])
    narrower = ceil_div(ceil_div(columns, base[1]), ceil_div(fewer * columns, limit)) * base[1]
    narrower = np.maximum(np.minimum(narrower, limit // fewer // base[1] * base[1]), base[1])
    kept = (where(small_m, base[i], cut[i]) for i in (0, 1))
    m, n = (where(over, new, old) for new, old in zip((fewer, narrower), kept, strict=True))
    return (m, n), over


def _tiling_data(
    at: Points,
    found: Result,
    base: tuple[IntArray, IntArray, IntArray],
    real: tuple[IntArray, IntArray],
    single: tuple[IntArray, IntArray],
    small_m: BoolArray,
) -> dict[str, IntArray]:
    base_m, base_n, base_k = base
    step_a, step_b = ceil_div(found.k_a_l1, found.k_l0), ceil_div(found.k_b_l1, found.k_l0)
    depth_a, depth_b = step_a * found.a_buffers, step_b * found.b_buffers
    return {
        "stepKa": step_a, "stepKb": step_b,
        "depthA1": depth_a, "depthB1": depth_b,
        "dbL0C": found.l0c_buffers,
        "singleCoreM": single[0], "singleCoreN": single[1],
        "realSingleCoreM": real[0], "realSingleCoreN": real[1],
        "transLength": np.maximum(np.maximum(base_m, base_n) * base_k, 4 * base_m * base_n),
        "shareL0CSize": 4 * base_m * base_n,
        "shareL1Size": depth_a * base_m * base_k + depth_b * base_n * base_k,
        "iterateOrder": _iterate_order(at, found, base, real, small_m),
    }  # fmt: skip


def _iterate_order(
    at: Points,
    found: Result,
    base: tuple[IntArray, IntArray, IntArray],
    real: tuple[IntArray, IntArray],
    small_m: BoolArray,
) -> IntArray:
    """1 for A only held whole, or both and the cheaper way, by what a core gets before anything is cut."""
    whole = ceil_div(at.k, 32)
    full_a, full_b = found.k_a_l1 >= whole, found.k_b_l1 >= whole
    m, n = (where(small_m, base[i], real[i]) for i in (0, 1))
    by_rows = m + n * ceil_div(m, base[0]) < n + m * ceil_div(n, base[1])
    return ints((full_a & ~full_b) | (full_a & full_b & by_rows))


def _unified_buffer(
    call: QuantMatmulCall,
    at: Points,
    platform: Platform,
    base: tuple[IntArray, IntArray, IntArray],
    optimised: BoolArray,
) -> dict[str, IntArray]:
    base_m, base_n, _ = base
    scale = SCALE_BYTES[call.scale_dtype]
    need = 32 * base_m + where(optimised, 4 * base_m * base_n + 4 * align_up(base_m, 8) + 8 * base_n, 56)
    row = where(optimised, base_n * (12 + 4), base_n * (12 + 8 + 2 * scale + 4 + 4) + 8)
    if call.bias_dtype in BIAS_BYTES:  # two buffers and once in float32; a row's sum unless optimised
        need = need + base_n * (2 * BIAS_BYTES[call.bias_dtype] + 4)
        row = row + where(optimised, 0, 4 * base_n)
    rows = np.minimum(np.minimum((platform.ub_bytes - need) // row, base_m), at.m)
    return {"ubCalcM": rows, "ubCalcN": base_n, "needUbBuffer": where(optimised, 0, 8 * rows * base_n)}
