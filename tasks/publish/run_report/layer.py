"""What a saving of the ledger can move at most: the parts of a profiled step of the same build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tilewatch.tasks.analyse.savings.exposed import saving_bound
from tilewatch.tasks.publish.display import duration
from tilewatch.tasks.publish.run_report.bands import Row
from tilewatch.tasks.sql import sql

OWNERS = {"dense": "", "expert": "grouped"}
"""Category of a step that a linear of the ledger, or a grouped matmul, belongs to."""

_STEPS = """
SELECT build, capture_id, arm, category, count(*) AS steps, sum(kernels)::BIGINT AS kernels,
       avg(busy_ns) AS busy_ns, avg(exposed_ns) AS exposed_ns, avg(step_ns) AS step_ns
FROM exposed GROUP BY build, capture_id, arm, category
ORDER BY build, capture_id, arm, category = 'idle', exposed_ns DESC, category
"""

_BEST = """
SELECT linear, m, net_ns / t_bf16_ns AS share FROM ledger
WHERE outcome = 'int8_wins' AND (allocation_regime <> '') = $1
ORDER BY share DESC, linear, m LIMIT 1
"""


@dataclass(frozen=True)
class LayerTable:
    """The parts of the mean step of one profiled capture; they add up to the step."""

    title: str
    bounds: list[str]
    rows: Sequence[tuple[str, ...]]


def layer_tables(exposed: pa.Table, ledger: pa.Table) -> list[LayerTable]:
    """One table a profiled capture, with the most that the ledger's best saving can take off its step."""
    rows: list[Row] = sql(_STEPS, {"exposed": exposed}).to_pylist()
    captures = sorted({(row["build"], row["capture_id"], row["arm"]) for row in rows})
    return [_table(key, rows, exposed, ledger) for key in captures]


def _table(key: tuple[Any, ...], rows: list[Row], exposed: pa.Table, ledger: pa.Table) -> LayerTable:
    build, capture, arm = key
    own = [row for row in rows if row["capture_id"] == capture]
    steps = max(row["steps"] for row in own)
    title = f"Step of {duration(own[0]['step_ns'])}, {build}, {arm}, mean of {steps}, capture {capture[:12]}"
    of_capture = sql("SELECT * FROM exposed WHERE capture_id = $1", {"exposed": exposed}, [capture])
    bounds = [text for category in OWNERS if (text := _bound(category, of_capture, ledger, build))]
    texts = [
        (
            row["category"], str(row["kernels"]), duration(row["busy_ns"]), duration(row["exposed_ns"]),
            f"{row['exposed_ns'] / row['step_ns']:.1%}",
        )
        for row in own
    ]  # fmt: skip
    return LayerTable(title, bounds, texts)


def _bound(category: str, exposed: pa.Table, ledger: pa.Table, build: str) -> str:
    """The bound in words; empty where the step has no such kernels or the ledger knows no saving."""
    own = sql("SELECT * FROM ledger WHERE build = $1", {"ledger": ledger}, [build])
    best = sql(_BEST, {"ledger": own}, [bool(OWNERS[category])]).to_pylist()
    share = saving_bound(exposed, category, 1.0)
    if not best or not share > 0:
        return ""
    (row,) = best
    most = saving_bound(exposed, category, row["share"])
    return (
        f"{category} kernels own {share:.1%} of the step. The ledger's best saving is {row['share']:.0%} of "
        f"T_bf16 ({row['linear']}, M {row['m']}), so a step with BF16 {category} kernels, and with it TPOT, "
        f"gets shorter by {most:.1%} at most."
    )
