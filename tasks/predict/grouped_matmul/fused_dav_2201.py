"""Host tiling of GroupedMatmul's fused relatives on NpuArch 2201 (910B, 910C): INT8 on both sides.

Restates ops-transformer's tiling of GroupedMatmulSwigluQuant and GroupedMatmulFinalizeRouting. Serving with
INT8 experts launches neither on the 910C; CANN's unit tests of both are among the golden vectors.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from tilewatch.tasks.predict.arithmetic.integers import IntArray, ints, where
from tilewatch.tasks.predict.calls import FinalizeRoutingCall, Points, SwigluQuantCall
from tilewatch.tasks.predict.environment import CannVersion, Platform
from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.predict.records import Decisions, Outcome, constants

SYSTEM_WORKSPACE_BYTES = 16 * 1024 * 1024
INTERMEDIATE_BYTES = 64 * 1024 * 1024
SWIGLU_MAX_N = 10240
FINALIZE_WORKSPACE_BYTES = 20 * 1024 * 1024
FINALIZE_KEY = 10_000_000_000_000_000_001

SWIGLU_OUTCOMES = (
    Outcome("whole_workspace", "the INT32 product of all rows stays within two halves of 64 MiB"),
    Outcome("split_workspace", "more rows than two halves of 64 MiB hold: the workspace is used in turns"),
)
FINALIZE_OUTCOMES = (
    Outcome("dense", "base block 128×256×128"),
    Outcome("tall", "N 7168 or 7680, K 2048 and 129 to 256 rows an expert: base block 256×128×128"),
)


def swiglu_quant(call: SwigluQuantCall, at: Points, platform: Platform, cann: CannVersion) -> Decisions:
    """Tiling of ``call`` at every point; block dim counts cube cores. Raises PredictError for a wide N."""
    if (at.n > SWIGLU_MAX_N).any():
        raise PredictError("n", f"{int(at.n.max())}: {call.op_type} takes at most {SWIGLU_MAX_N} columns")
    most_rows = 2 * (INTERMEDIATE_BYTES // 2 // 4 // at.n)
    split = ints(at.m > most_rows)
    cores = platform.cube_cores
    fixed = {"block_dim": cores, "used_core_num": cores, "base_m": 128, "base_n": 256, "schedule_mode": 1}
    workspace = SYSTEM_WORKSPACE_BYTES + np.minimum(at.m, most_rows) * at.n * 4
    columns = constants(fixed, len(at)) | {"tiling_key": split, "workspace_bytes": workspace}
    return Decisions(columns, {}, split, SWIGLU_OUTCOMES, {})


def finalize_routing(
    call: FinalizeRoutingCall, at: Points, platform: Platform, cann: CannVersion
) -> Decisions:
    """Tiling of ``call`` at every point; the cores it takes are not written down and stay unset."""
    rows = where(at.tuning_config > 0, at.tuning_config, at.m // call.groups)
    tall = np.isin(at.n, (7168, 7680)) & (at.k == 2048) & (rows > 128) & (rows <= 256)
    key = FINALIZE_KEY + 10 * (call.row_index_dtype == "int32") + 100 * (call.scale_dtype == "bfloat16")
    workspace = FINALIZE_WORKSPACE_BYTES + 4 * 256 * 128 * 4 * platform.cube_cores
    columns = constants({"workspace_bytes": workspace, "base_k": 128}, len(at)) | {
        # This key needs all 64 bits, which no signed number holds.
        "tiling_key": cast(IntArray, np.full(len(at), key, dtype=np.uint64)),
        "base_m": where(tall, 256, 128),
        "base_n": where(tall, 128, 256),
    }
    return Decisions(columns, {}, ints(tall), FINALIZE_OUTCOMES, {})
