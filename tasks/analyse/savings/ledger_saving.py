"""What the operators' ledger says a decode step saves, from the W8A8 calls that the profile shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tilewatch.tasks.sql import sql

DENSE_TYPES = ("npu::npu_quant_matmul", "QuantBatchMatmulV3", "QuantBatchMatmulV4")
GROUPED_TYPES = ("npu::npu_grouped_matmul", "GroupedMatmul")

# Torch's traces have no dtype of listed tensors, which are those of grouped matmuls: the quantised arm's are
# INT8. The first input is x [M, K]; N is the last extent of the output where the profiler has it, else of the
# weight, whose NZ extents only the device profiler writes and which then has outputs.
_CALLS = """
WITH steps AS (
    SELECT capture_id, source_file, step_id FROM stage_steps
    WHERE arm = $1 AND phase IN ('decode', 'target_verify')
), counted AS (SELECT count(*) AS n FROM steps),
calls AS (
    SELECT k.op_type IN (SELECT unnest($3)) AS grouped, k.input_shapes[1] AS x, k.input_shapes[2] AS w,
           k.output_shapes[1] AS y, k.input_dtypes[1] AS dtype
    FROM kernels k WHERE k.arm = $1 AND k.op_type IN (SELECT unnest(list_concat($2, $3)))
      AND EXISTS (SELECT 1 FROM steps s WHERE s.capture_id = k.capture_id AND s.step_id = k.step_id
                  AND (s.source_file = k.source_file OR k.task_type <> 'CPU'))
)
SELECT grouped, x[-1] AS k, coalesce(y[-1], w[-1]) AS n,
       CASE WHEN grouped AND len(w) = 3 THEN round(x[1] / w[1])::BIGINT ELSE x[1] END AS m,
       count(*) / any_value(counted.n) AS calls
FROM calls, counted WHERE lower(dtype) = 'int8' OR (grouped AND dtype IS NULL) GROUP BY ALL ORDER BY ALL
"""

_KNOWN = """
SELECT allocation_regime <> '' AS grouped, k, n, m, run_id, avg(net_ns) AS net
FROM ledger WHERE net_ns IS NOT NULL AND (input_kind = 'standalone' OR allocation_regime <> '')
GROUP BY ALL ORDER BY grouped, k, n, m
"""


@dataclass(frozen=True)
class Predicted:
    """Net saving of one decode step in ns (positive is a gain), over the calls that the ledger covers."""

    calls_per_step: float | None
    covered_share: float | None
    saving_ns: float | None
    run_ids: tuple[str, ...]
    gap: str | None
    """What keeps the prediction from being whole; None where it is."""


def predicted_saving(kernels: pa.Table, stage_steps: pa.Table, ledger: pa.Table, arm: str) -> Predicted:
    """Sum of the ledger's net over the INT8 linears and experts of ``arm``'s mean decode step.

    A call is matched by (grouped, K, N); its M is looked up, or interpolated between the two nearest M of the
    ledger: outside of them, or of a shape that the ledger does not have, it is not covered.
    """
    calls = sql(
        _CALLS,
        {"kernels": kernels, "stage_steps": stage_steps},
        [arm, list(DENSE_TYPES), list(GROUPED_TYPES)],
    ).to_pylist()
    if not calls:
        return Predicted(None, None, None, (), "no INT8 linear of a decode step was profiled with its shape")
    known: dict[tuple[bool, int, int], list[tuple[int, float]]] = {}
    runs: set[str] = set()
    for row in sql(_KNOWN, {"ledger": ledger}).to_pylist():
        known.setdefault((row["grouped"], row["k"], row["n"]), []).append((row["m"], row["net"]))
        runs.add(row["run_id"])
    total = sum(call["calls"] for call in calls)
    saving, covered = 0.0, 0.0
    missing = []
    for call in calls:
        nets = known.get((call["grouped"], call["k"], call["n"]), [])
        axis = [m for m, _ in nets]
        if not axis or not axis[0] <= call["m"] <= axis[-1]:
            missing.append(f"K{call['k']} N{call['n']} M{call['m']}")
            continue
        saving += call["calls"] * float(np.interp(call["m"], axis, [net for _, net in nets]))
        covered += call["calls"]
    gap = None
    if missing:
        shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        gap = f"the ledger has a net for {covered:g} of {total:g} INT8 calls a step, none for {shown}"
    return Predicted(
        total, covered / total, saving if covered else None, tuple(sorted(runs)) if covered else (), gap
    )
