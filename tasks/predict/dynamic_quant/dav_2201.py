"""Host tiling of DynamicQuant on NpuArch 2201 (910B, 910C), per token to int8.

Restates ops-nn's dynamic_quant tiling for this architecture. Three branches are tried in order; the first two
exist from CANN 9.0.0 and give one core several rows, so that block dim is no longer min(vector cores, M).
The tiling object is one per thread: fields a branch does not write keep the value of an earlier call, and are
left unset here.
"""

from __future__ import annotations

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import (
    UNSET,
    BoolArray,
    IntArray,
    align_down,
    align_up,
    ceil_div,
    ints,
    where,
)
from tilewatch.tasks.predict.calls import DynamicQuantCall, Points
from tilewatch.tasks.predict.environment import CannVersion, Platform
from tilewatch.tasks.predict.records import Decisions, Outcome

WORKSPACE_BYTES = 16777216
RESERVED_UB_BYTES = 1024
ROW_LIMIT = 255
SPECIAL_K = (4096, 5120, 10240)
SPECIAL_M = (4, 384)
SPECIAL_ELEMENTS = 16384
MULTI_ROW_MAX_K = 16320
MULTI_ROW_MIN_K = 128
MULTI_ROW_BUFFERS = 256 + 64 + 12 * 64 * 4
GROUP_INDEX_BYTES = 4

OUTCOMES = (
    Outcome(
        "special_last_dim",
        "K in (4096, 5120, 10240) and 4 ≤ M ≤ 384: lots of min(⌊16384/K⌋, M) rows, cores = ⌈lots/⌈lots/V⌉⌉",
        "special_last_dim",
    ),
    Outcome(
        "multi_row",
        "128 ≤ K ≤ 16320 and K % 8 == 0: whole lots of min(⌊W/K⌋, M) rows, cores = ⌊M/lot⌋ while below V",
        "multi_row",
    ),
    Outcome("generic_double_buffer", "row by row: cores = min(V, M); a row fits UB twice", "double_buffer"),
    Outcome("generic", "row by row: cores = min(V, M); a row fits UB once", "single_buffer"),
    Outcome("large_shape", "row by row: cores = min(V, M); a row does not fit UB", "long_row_split"),
    Outcome("generic_grouped", "group_index: cores = min(V, M), smooth scale chosen by row", "grouped"),
)
SPECIAL, MULTI_ROW, DOUBLE, SINGLE, SPLIT, GROUPED = range(len(OUTCOMES))
Tiling = dict[str, IntArray]


def tile(call: DynamicQuantCall, at: Points, platform: Platform, cann: CannVersion) -> Decisions:
    """Tiling of ``call`` at every point; block dim counts vector cores."""
    m, k = at.m, at.k
    special, multi_row = _small_m_branches(call, m, k, platform, cann)
    tiling = _generic(call, m, k, platform)
    for chosen, branch in ((multi_row, _multi_row), (special, _special)):
        values = branch(call, m, k, platform)
        tiling = {name: where(chosen, values.get(name, ints(UNSET)), old) for name, old in tiling.items()}
    outcome = tiling.pop("outcome")
    key = tiling.pop("key")
    cores = tiling.pop("coreNum")
    # A multi-row core's row count follows M itself; the passes it needs are what steps.
    row_steps = where(outcome == MULTI_ROW, UNSET, tiling["rowPerHeadCore"])
    return Decisions(
        columns={
            "tiling_key": key,
            "block_dim": cores,
            "used_core_num": cores,
            "workspace_bytes": np.full(len(at), WORKSPACE_BYTES),
            "schedule_mode": np.zeros(len(at), dtype=np.int64),
            "rounds": _rounds(tiling, outcome),
        },
        fields=tiling,
        outcome=outcome,
        outcomes=OUTCOMES,
        compared={"rowPerHeadCore": row_steps, "innerLoopTimes": tiling["innerLoopTimes"]},
    )


def _small_m_branches(
    call: DynamicQuantCall, m: IntArray, k: IntArray, platform: Platform, cann: CannVersion
) -> tuple[BoolArray, BoolArray]:
    """Where the two branches of CANN 9.0.0 apply; the special one is tried first."""
    eligible = cann.dynamic_quant_small_m and not call.group_num and not call.asymmetric
    special = np.isin(k, SPECIAL_K) & (m >= SPECIAL_M[0]) & (m <= SPECIAL_M[1]) & eligible
    multi_row = (k >= MULTI_ROW_MIN_K) & (k <= _multi_row_width(call, platform)) & (k % 8 == 0) & eligible
    return special, multi_row & ~special


def _multi_row_width(call: DynamicQuantCall, platform: Platform) -> int:
    """W: elements of the rows one core may hold at a time."""
    bytes_per_element = 15 if call.smooth else 11
    room = platform.ub_bytes - RESERVED_UB_BYTES - MULTI_ROW_BUFFERS
    return min(room // bytes_per_element // 64 * 64, MULTI_ROW_MAX_K)


def _special(call: DynamicQuantCall, m: IntArray, k: IntArray, platform: Platform) -> Tiling:
    rows = np.minimum(np.maximum(SPECIAL_ELEMENTS // k, 1), m)
    lots = ceil_div(m, rows)
    cores = ceil_div(lots, ceil_div(lots, platform.vector_cores))
    head_rows = ceil_div(lots, cores) * rows
    return {
        "outcome": ints(SPECIAL),
        "key": ints(100),
        "coreNum": cores,
        "rowLen": k,
        "headCoreNum": cores - 1,
        "rowPerHeadCore": head_rows,
        "rowPerTailCore": np.maximum(0, m - (cores - 1) * head_rows),
        "multiRowNumHeadCore": rows,
        "multiRowNumTailCore": rows,
        "hasSmooth": ints(call.smooth),
    }


def _multi_row(call: DynamicQuantCall, m: IntArray, k: IntArray, platform: Platform) -> Tiling:
    rows = np.minimum(np.maximum(_multi_row_width(call, platform) // k, 1), m)
    lots = m // rows
    lots_per_core = lots // platform.vector_cores
    spread = np.maximum(lots_per_core, 1)
    cores = np.minimum(lots // spread, platform.vector_cores)
    extra = m - cores * spread * rows
    return {
        "outcome": ints(MULTI_ROW),
        "key": ints(10),
        "coreNum": cores,
        "rowLen": k,
        "headCoreNum": extra % cores,
        "rowPerHeadCore": spread * rows + extra // cores + 1,
        "multiRowNumHeadCore": rows,
        "multiRowNumTailCore": rows,
        "hasSmooth": ints(call.smooth),
        "ubSize": ints(platform.ub_bytes),
    }


def _generic(call: DynamicQuantCall, m: IntArray, k: IntArray, platform: Platform) -> Tiling:
    cores = np.minimum(platform.vector_cores, m)
    room = platform.ub_bytes - RESERVED_UB_BYTES
    padded = align_up(k, 16)
    row_bytes = padded * (17 if call.smooth or call.group_num else 11)
    if call.group_num:
        row_bytes = row_bytes + align_up(call.group_num, 8) * GROUP_INDEX_BYTES
    fitting = room // row_bytes
    split = fitting == 0
    double = padded * (19 if call.smooth else 13) < room
    grouped = np.full_like(split, bool(call.group_num))
    outcome = np.select([grouped, split, double], [GROUPED, SPLIT, DOUBLE], SINGLE)
    at_once = where(np.isin(outcome, (DOUBLE, GROUPED)), np.maximum(fitting, 1), 1)
    inner = align_down(room // 19, 128)
    head, tail = ceil_div(m, cores), m // cores
    return {
        "outcome": ints(outcome),
        "key": _generic_key(call, outcome, split),
        "coreNum": cores,
        "rowLen": k,
        "headCoreNum": m % cores,
        "rowPerHeadCore": head,
        "rowPerTailCore": tail,
        "multiRowNumHeadCore": np.minimum(np.minimum(ROW_LIMIT, at_once), head),
        "multiRowNumTailCore": np.minimum(np.minimum(ROW_LIMIT, at_once), tail),
        "innerLoopEle": where(split, inner, 0),
        "innerLoopTimes": where(split, k // inner, 0),
        "innerLoopTail": where(split, k % inner, 0),
        "groupNum": np.full_like(m, call.group_num),
        "alignGroupNum": np.full_like(m, align_up(call.group_num, 8)),
        "hasSmooth": np.full_like(m, call.smooth or call.group_num > 0),
        "ubSize": np.full_like(m, platform.ub_bytes),
    }


def _generic_key(call: DynamicQuantCall, outcome: IntArray, split: BoolArray) -> IntArray:
    if call.group_num:
        return where(split, 8, 7)
    half = call.x_dtype == "float16"
    keys = {DOUBLE: 3 if half else 2, SINGLE: 1 if half else 0, SPLIT: 6}
    return ints(np.select([outcome == o for o in keys], list(keys.values())))


def _rounds(tiling: Tiling, outcome: IntArray) -> IntArray:
    """Passes of the fullest core: its rows by the rows it holds at a time."""
    written = tiling["rowPerHeadCore"]
    # The multi-row branch counts one row too many for cores that are not head cores.
    over = (outcome == MULTI_ROW) & (tiling["headCoreNum"] == 0)
    return ceil_div(written - over, np.maximum(tiling["multiRowNumHeadCore"], 1))
