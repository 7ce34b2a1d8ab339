"""Host tiling of GroupedMatmul int8 × int8 on NpuArch 2201 (910B, 910C).

Restates ops-transformer's grouped_matmul tiling in three texts: V1 (2025-11), V2 (adds the fixed axis) and V3
(adds the reduced core number). ``m`` is the allocated rows of x. The host never reads the group list; rows
per expert only give the work: blocks of the fullest expert and rounds over the cores.

CANN's unit tests confirm key, block dim and workspace; base block, steps and single_n have no golden value.
"""

from __future__ import annotations

from dataclasses import replace

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
from tilewatch.tasks.predict.calls import NZ, GroupedMatmulCall, Points
from tilewatch.tasks.predict.environment import CannVersion, Platform
from tilewatch.tasks.predict.grouped_matmul.single_n import (
    BaseBlock,
    dynamic_single_n,
    hold_all_of_a,
    static_single_n,
)
from tilewatch.tasks.predict.records import CUBE_ONLY, ONE_TO_ONE, TWO_TO_ONE, Decisions, Outcome

SYSTEM_WORKSPACE_BYTES = 16777216
ACT_GELU = 2
LIST_CUMSUM, LIST_SPARSE = 0, 2
PRE_TILING_CORES = 24
PRE_TILING_SHAPES = (((576, 7168, 4096), False, 128, 512, 1), ((576, 2048, 7168), True, 96, 1792, 2))
FIXED_AXIS_SHAPES = ((2048, 7168), (7168, 4096))
STATIC_MAX_K = 8192
KEY = KeyLayout(
    ("D_T_A", 8), ("D_T_B", 8), ("D_T_Y", 8), ("TRANS_A", 1), ("TRANS_B", 1), ("GROUP_LIST_TYPE", 2),
    ("IS_STATIC_TILING_API", 1), ("A8W4_KERNEL_TEMPLATE", 4), ("A16W8_KERNEL_TEMPLATE", 2),
    ("AIV_AIC_RATIO", 2), ("IS_ENABLE_FIXED_AXIS", 1),
)  # fmt: skip
TYPE_CODE = {"float16": 1, "int8": 2, "int32": 3, "bfloat16": 27}
SCALE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "int32": 4, "uint64": 8}

_ASSUMED = "host text {code} is assumed for this CANN release; its ops-transformer decides"
RULES = (
    (
        "dense",
        "base block 128×256×128 cut to the allocated rows; two vector cores a cube core only with a hint",
    ),
    ("tuned", "a tuning hint of 129 to 256 rows an expert: base block 256×128×128"),
    ("fixed_axis", "fixed axis: 4 groups, FP16 out, hint 128 to 512 and enough workspace allowed"),
    ("pre_tiling", "one group, no hint, 24 cores: pre-tiling"),
)
DENSE, TUNED, FIXED_AXIS, PRE_TILING = range(len(RULES))


def tile(call: GroupedMatmulCall, at: Points, platform: Platform, cann: CannVersion) -> Decisions:
    """Tiling of ``call`` at every point; block dim counts cube cores."""
    code = cann.grouped_matmul_code
    tuned = _is_tuned(call, at)
    first = _base_block(call, at, platform, tuned)
    fixed = _is_fixed_axis(call, at) & (code != "V1")
    used = _used_cores(call, at, platform, first, code, fixed)
    block, single_n = _widen_tasks(call, at, platform, first, used, code, fixed)
    pre = (at.tuning_config == 0) & (call.groups == 1) & (used == PRE_TILING_CORES)
    block, single_n, flag = _pre_tiling(call, at, pre, block, single_n)
    ratio = _ratio(call, at, code, fixed)
    static = _is_static(call, at, block) & ~pre & (ratio != TWO_TO_ONE) & ~fixed
    columns = where(single_n > 0, single_n, block.n)
    units, rounds = _work(call, at, block.m, columns, used)
    tiling = {
        "stepKa": block.step_a, "stepKb": block.step_b, "depthA1": block.depth_a, "depthB1": block.depth_b,
        "isPreTiling": flag, "isStaticTilingApi": ints(static), "isEnableFixedAxis": ints(fixed),
    }  # fmt: skip
    return Decisions(
        columns={
            "tiling_key": _tiling_key(call, static, ratio, fixed),
            "block_dim": used,
            "used_core_num": used,
            "base_m": block.m,
            "base_n": block.n,
            "base_k": block.k,
            "m_cnt": ceil_div(at.m, block.m),
            "n_cnt": ceil_div(at.n, block.n),
            "aiv_aic_ratio": ratio,
            "single_n": single_n,
            "tuning_config": at.tuning_config,
            "workspace_bytes": _workspace(call, at, first, used, fixed),
            "units_per_expert": units,
            "rounds": rounds,
        },
        fields=tiling | _unified_buffer(call, first, platform, fixed),
        outcome=ints(np.select([fixed, pre, tuned], [FIXED_AXIS, PRE_TILING, TUNED], DENSE)),
        outcomes=tuple(Outcome(name, rule, None, _ASSUMED.format(code=code)) for name, rule in RULES),
        compared=tiling,
    )


def _is_tuned(call: GroupedMatmulCall, at: Points) -> BoolArray:
    hint = at.tuning_config
    special = (call.out_dtype == "int32") & (hint > 0) & (hint <= 128)
    special = special & np.isin(at.k, (7168, 7680)) & (at.n == 2048)
    return mask(special | ((hint > 128) & (hint <= 256)), len(at))


def _base_block(call: GroupedMatmulCall, at: Points, platform: Platform, tuned: BoolArray) -> BaseBlock:
    n = where(tuned, 128, 256)
    k = ints(platform.l0b_bytes // 2 // n // 16 * 16)
    k = where(tuned, 128, k)
    widest = np.minimum(platform.l0a_bytes // 2 // k, platform.l0c_bytes // (4 * n))
    m = where(tuned, 256, widest)
    m = np.minimum(where(m > at.m, align_up(at.m, 16), m), 256)
    half = 262144
    room = platform.l1_bytes - n * 8 - (n * 4 if call.bias else 0)
    l1_a = where(m > n, half, room - half)
    step_a = ints(l1_a // 2 // (m * k))
    step_b = ints((room - l1_a) // 2 // (n * k))
    a_larger = step_a > step_b
    step_a = where(a_larger, step_a // np.maximum(step_b, 1) * step_b, step_a)
    step_b = where(a_larger, step_b, step_b // np.maximum(step_a, 1) * step_a)
    return BaseBlock(m, n, k, step_a, step_b, 2 * step_a, 2 * step_b)


def _used_cores(
    call: GroupedMatmulCall, at: Points, platform: Platform, block: BaseBlock, code: str, fixed: BoolArray
) -> IntArray:
    cores = platform.cube_cores
    columns = ceil_div(at.n, block.n)
    used = np.full(len(at), cores, dtype=np.int64)
    if code == "V3" and call.single_tensors and call.group_type == 0:
        row_blocks = where(at.m <= call.groups, at.m, call.groups + (at.m - call.groups) // block.m)
        used = np.minimum(used, row_blocks * columns)
    if call.groups > 1:
        return used
    hinted = (at.tuning_config >= 1) & (at.tuning_config <= 256) & ~fixed
    idle = ((3 * cores > columns) & (columns % cores <= cores // 2)) | (columns < cores)
    return where(hinted & idle, ceil_div(columns, ceil_div(columns, cores)), used)


def _workspace(
    call: GroupedMatmulCall, at: Points, block: BaseBlock, used: IntArray, fixed: BoolArray
) -> IntArray:
    """Four blocks of matmul output a core, while cube and vector cores overlap."""
    overlap = ints(0) if call.out_dtype == "int32" else 4 * block.m * block.n * used * 4
    return SYSTEM_WORKSPACE_BYTES + where(fixed, at.m * at.n * 4, overlap)


def _is_fixed_axis(call: GroupedMatmulCall, at: Points) -> BoolArray:
    eligible = (
        call.groups == 4 and call.out_dtype == "float16" and call.scale_dtype == "float32"
        and call.per_token_scale and not call.transpose_x and not call.transpose_w and not call.bias
        and call.split_item in (2, 3) and call.group_list_type == LIST_CUMSUM and call.group_type == 0
        and call.act_type == 0 and call.weight_format == NZ
    )  # fmt: skip
    shape = np.zeros(len(at), dtype=np.bool_)
    for k, n in FIXED_AXIS_SHAPES:
        shape |= (at.k == k) & (at.n == n)
    hinted = (at.tuning_config >= 128) & (at.tuning_config <= 512)
    allowed = (at.m * at.n * 4 <= call.workspace_allowance) | (call.workspace_allowance == -1)
    return mask(shape & hinted & allowed & eligible, len(at))


def _widen_tasks(
    call: GroupedMatmulCall,
    at: Points,
    platform: Platform,
    block: BaseBlock,
    used: IntArray,
    code: str,
    fixed: BoolArray,
) -> tuple[BaseBlock, IntArray]:
    """single_n by the static rule, then by the hint; the hint's also tries to hold all of A in L1."""
    single_n = where(fixed, 0, static_single_n(call, at, block.n, platform.cube_cores))
    if code == "V3" and not (call.single_tensors and call.group_type == 0):
        return block, single_n
    hinted = dynamic_single_n(call, at, block.m, block.n, used)
    changed = hinted != block.n
    return hold_all_of_a(call, at, block, changed, platform.l1_bytes), where(changed, hinted, single_n)


def _pre_tiling(
    call: GroupedMatmulCall, at: Points, pre: BoolArray, block: BaseBlock, single_n: IntArray
) -> tuple[BaseBlock, IntArray, IntArray]:
    """Block, single_n and flag of pre-tiling: 1, and two listed shapes have their own."""
    base_m, flag = block.m, ints(pre)
    for (m, k, n), nz, *listed in PRE_TILING_SHAPES:
        hit = pre & (at.m == m) & (at.k == k) & (at.n == n) & ((call.weight_format == NZ) == nz)
        base_m, single_n, flag = (
            where(hit, own, old) for own, old in zip(listed, (base_m, single_n, flag), strict=True)
        )
    return replace(block, m=base_m), single_n, flag


def _ratio(call: GroupedMatmulCall, at: Points, code: str, fixed: BoolArray) -> IntArray:
    """Vector cores a cube core; texts from V2 on keep sparse lists at one."""
    dense = call.group_list_type != LIST_SPARSE or code == "V1"
    deep = (at.k <= 1024) | (at.k >= 2048)
    two = dense & ((call.act_type == ACT_GELU) | (deep & (at.tuning_config >= 128) & call.per_token_scale))
    one = CUBE_ONLY if call.out_dtype in ("int8", "int32") else ONE_TO_ONE
    return where(fixed, ONE_TO_ONE, where(two, TWO_TO_ONE, one))


def _is_static(call: GroupedMatmulCall, at: Points, block: BaseBlock) -> BoolArray:
    plain = call.single_tensors and not call.bias and call.act_type == 0 and call.group_type == 0
    steps = (block.step_a == 4) & (block.step_b == 4) & (block.depth_a == 8) & (block.depth_b == 8)
    blocks = (block.m == 128) & (block.n == 256) & (block.k == 128)
    return mask(steps & blocks & (at.k <= STATIC_MAX_K) & plain, len(at))


def _tiling_key(call: GroupedMatmulCall, static: BoolArray, ratio: IntArray, fixed: BoolArray) -> IntArray:
    return KEY.compose(
        D_T_A=TYPE_CODE["int8"],
        D_T_B=TYPE_CODE["int8"],
        D_T_Y=TYPE_CODE[call.out_dtype],
        TRANS_A=call.transpose_x,
        TRANS_B=call.transpose_w,
        GROUP_LIST_TYPE=call.group_list_type,
        IS_STATIC_TILING_API=ints(static),
        AIV_AIC_RATIO=ratio,
        IS_ENABLE_FIXED_AXIS=ints(fixed),
    )


def _unified_buffer(
    call: GroupedMatmulCall, block: BaseBlock, platform: Platform, fixed: BoolArray
) -> dict[str, IntArray]:
    """UB of the per-token epilogue: 28 parts, 12 for input and output, 2 KiB granules."""
    if not call.per_token_scale or call.out_dtype in ("int8", "int32"):
        return {}
    scales = 2 * (block.n * SCALE_BYTES[call.scale_dtype] + 4 * block.m)
    room = platform.ub_bytes - where(fixed, 0, scales)
    elements = room // 28 // 2048 * 2048
    rest = ints((room - 12 * elements) // 32 * 32)
    rows = where(np.full(len(fixed), call.transpose_w), UNSET, elements // block.n)
    return {"ubCalSize": elements, "ubRestBytes": rest, "vBaseM": rows}


def _work(
    call: GroupedMatmulCall, at: Points, base_m: IntArray, columns: IntArray, used: IntArray
) -> tuple[IntArray, IntArray]:
    """Blocks of the fullest expert, and rounds over the cores.

    The kernel deals ⌈m_e/base_m⌉·⌈n/columns⌉ blocks an expert round-robin and skips empty experts.
    """
    across = ceil_div(at.n, columns)
    if call.group_list is not None:
        blocks = ceil_div(ints(call.group_list)[:, None], base_m) * across
        return blocks.max(axis=0), ceil_div(blocks.sum(axis=0), used)
    units = ceil_div(at.m_e, base_m) * across
    busy = call.groups if call.busy_groups is None else call.busy_groups
    known = at.m_e > 0
    return where(known, units, UNSET), where(known, ceil_div(units * busy, used), UNSET)
