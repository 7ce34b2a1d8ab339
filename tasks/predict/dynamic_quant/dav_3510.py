"""Host tiling of DynamicQuant on NpuArch 3510 (950), per token to int8; the operator is DynamicQuantV2.

Restates ops-nn's arch35 dynamic_quant tiling: full load while a row fits UB, a long-row loop otherwise, and
from CANN 9.2 a very long row over several cores when M leaves cores idle.
"""

from __future__ import annotations

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import IntArray, align_down, align_up, ceil_div, ints, where
from tilewatch.tasks.predict.arithmetic.tiling_keys import KeyLayout
from tilewatch.tasks.predict.calls import DynamicQuantCall, Points
from tilewatch.tasks.predict.environment import CannVersion, Platform
from tilewatch.tasks.predict.errors import OutOfScope
from tilewatch.tasks.predict.records import Decisions, Outcome

WORKSPACE_BYTES = 16777216
RESERVED_UB_BYTES = 1024
ROW_LIMIT = 255
LONG_ROW_UBS = 4

OUTCOMES = (
    Outcome("full_load_double_buffer", "a row fits UB twice: cores = min(V, M)", "full_load_double_buffer"),
    Outcome("full_load", "a row fits UB once but not twice: cores = min(V, M)", "full_load"),
    Outcome("large_shape", "a row does not fit UB: cores = min(V, M), each row in a loop", "large_shape"),
    Outcome(
        "large_multicore",
        "a row needs at least four UBs and M ≤ ⌊V/2⌋: every row is split over max(2, ⌊V/M⌋) cores",
        "large_multicore",
    ),
)
DOUBLE, SINGLE, LOOP, MULTICORE = range(len(OUTCOMES))
QUANT_MODE = (0, 0, 1, 12)
USES_DOUBLE_BUFFER = (1, 0, 1, 1)


def tile(call: DynamicQuantCall, at: Points, platform: Platform, cann: CannVersion) -> Decisions:
    """Tiling of ``call`` at every point; block dim counts vector cores. Raises OutOfScope for group_index."""
    if call.group_num:
        raise OutOfScope("group_num", "group_index is restated for NpuArch 2201 only")
    outcome = _outcome(call, at, platform, cann)
    tiling = _rows(call, at, platform, outcome)
    split = outcome == MULTICORE
    tiling = {name: where(split, _split_rows(at, platform)[name], value) for name, value in tiling.items()}
    tiling |= _inner_loop(call, at, platform, outcome, tiling)
    tiling |= {"groupNum": np.zeros_like(at.m), "hasSmooth": np.full_like(at.m, call.smooth)}
    tiling["dstTypeMax"] = np.full_like(at.m, 32768)
    cores = tiling.pop("coreNum")
    per_core = 4 if not call.asymmetric else 8
    return Decisions(
        columns={
            "tiling_key": _tiling_key(call, cann, outcome),
            "block_dim": cores,
            "used_core_num": cores,
            "workspace_bytes": WORKSPACE_BYTES + per_core * cores,
            "schedule_mode": ints(split),
            "rounds": where(
                split, 1, ceil_div(ceil_div(at.m, cores), np.maximum(tiling["multiRowNumHeadCore"], 1))
            ),
        },
        fields=tiling,
        outcome=outcome,
        outcomes=OUTCOMES,
        compared={
            "rowPerHeadCore": where(split, 0, tiling["rowPerHeadCore"]),
            "innerLoopTimes": tiling["innerLoopTimes"],
        },
    )


def _outcome(call: DynamicQuantCall, at: Points, platform: Platform, cann: CannVersion) -> IntArray:
    room = platform.ub_bytes - RESERVED_UB_BYTES
    padded = align_up(at.k, 16)
    once = padded * (11 + 2 * call.smooth)
    idle = at.m <= platform.vector_cores // 2
    multicore = (once >= LONG_ROW_UBS * room) & idle & cann.dynamic_quant_split_rows
    return ints(np.select([2 * once <= room, once <= room, multicore], [DOUBLE, SINGLE, MULTICORE], LOOP))


def _rows(call: DynamicQuantCall, at: Points, platform: Platform, outcome: IntArray) -> dict[str, IntArray]:
    """Rows a core; the head count is taken modulo the platform's cores, not the used ones."""
    vectors = platform.vector_cores
    room = platform.ub_bytes - RESERVED_UB_BYTES
    once = align_up(at.k, 16) * (11 + 2 * call.smooth)
    at_once = np.select([outcome == DOUBLE, outcome == SINGLE], [room // (2 * once), room // once], 1)
    head, tail = ceil_div(at.m, vectors), at.m // vectors
    return {
        "coreNum": np.minimum(vectors, at.m),
        "rowLen": at.k,
        "headCoreNum": at.m % vectors,
        "rowPerHeadCore": head,
        "rowPerTailCore": tail,
        "multiRowNumHeadCore": np.minimum(np.minimum(at_once, ROW_LIMIT), head),
        "multiRowNumTailCore": np.minimum(np.minimum(at_once, ROW_LIMIT), tail),
    }


def _split_rows(at: Points, platform: Platform) -> dict[str, IntArray]:
    """One row over several cores; the host re-uses the row fields for slices of a row."""
    per_row = ints(np.maximum(2, platform.vector_cores // at.m))
    head, tail = ceil_div(at.k, per_row), at.k // per_row
    return {
        "coreNum": per_row * at.m,
        "rowLen": at.k,
        "headCoreNum": per_row,
        "rowPerHeadCore": head,
        "rowPerTailCore": tail,
        "multiRowNumHeadCore": where(head == tail, per_row, at.k - per_row * tail),
        "multiRowNumTailCore": np.ones_like(at.m),
    }


def _inner_loop(
    call: DynamicQuantCall, at: Points, platform: Platform, outcome: IntArray, tiling: dict[str, IntArray]
) -> dict[str, IntArray]:
    element_bytes = 2 * (4 + 2 * call.smooth)
    room = (platform.ub_bytes - 2 * RESERVED_UB_BYTES) // element_bytes
    inner = align_down(room, 128)
    looped = where(outcome == MULTICORE, tiling["rowPerHeadCore"], at.k)
    loops = outcome >= LOOP
    return {
        "innerLoopEle": where(loops, inner, 0),
        "innerLoopTimes": where(loops, looped // inner, 0),
        "innerLoopTail": where(loops, looped % inner, 0),
    }


def key_layout(cann: CannVersion) -> KeyLayout:
    """The tiling key of this operator; CANN 8.5.0 gives quantMode three bits, later ones four."""
    mode = ("quantMode", cann.dynamic_quant_mode_bits)
    return KeyLayout(("useDb", 1), mode, ("hasSmooth", 1), ("isSymmetrical", 1))


def _tiling_key(call: DynamicQuantCall, cann: CannVersion, outcome: IntArray) -> IntArray:
    return key_layout(cann).compose(
        useDb=ints(USES_DOUBLE_BUFFER)[outcome],
        quantMode=ints(QUANT_MODE)[outcome],
        hasSmooth=call.smooth,
        isSymmetrical=not call.asymmetric,
    )
