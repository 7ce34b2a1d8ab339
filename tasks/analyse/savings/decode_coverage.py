"""Which share of a profiled step the catalogue can sweep and predict, of kernel time and of wall."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.analyse.savings.exposed import COMMUNICATION, exposed_times
from tilewatch.tasks.plan.kernel_types import MAIN_KERNELS
from tilewatch.tasks.predict.environment import DAV_2201
from tilewatch.tasks.predict.predict import BRANCHES
from tilewatch.tasks.sql import sql

SHOWN = 5
IDLE = "idle"
_ROWS = """
WITH sums AS (
    SELECT operator, count(*) AS kernels, sum(duration_ns)::BIGINT AS sum_ns FROM kernels GROUP BY operator
), own AS (SELECT category AS operator, sum(exposed_ns)::BIGINT AS wall_ns FROM exposed GROUP BY category)
SELECT coalesce(s.operator, o.operator) AS operator, coalesce(kernels, 0) AS kernels,
       coalesce(sum_ns, 0) AS sum_ns, wall_ns
FROM sums s FULL JOIN own o ON s.operator = o.operator
ORDER BY sum_ns DESC, wall_ns DESC NULLS LAST, 1
"""


@dataclass(frozen=True)
class OperatorTime:
    """One operator type of a profile: its kernels, their sum, the wall time they own, and what we can do.

    ``wall_ns`` is None where the profile has no start times. ``idle`` owns the time in which nothing ran.
    """

    operator: str
    kernels: int
    sum_ns: int
    wall_ns: int | None
    swept: bool
    predicted: bool


@dataclass(frozen=True)
class Coverage:
    """Operators of the profiled steps, largest sum first; nothing of them is left out."""

    operators: tuple[OperatorTime, ...]

    def share(self, what: str, of: str) -> float | None:
        """Share of ``sum_ns`` or ``wall_ns`` that is ``swept`` or ``predicted``; None without such time."""
        times = [(getattr(row, of), getattr(row, what)) for row in self.operators]
        if any(time is None for time, _ in times) or not (total := sum(time for time, _ in times)):
            return None
        return float(sum(time for time, own in times if own)) / float(total)

    @property
    def rest(self) -> tuple[OperatorTime, ...]:
        """What can be neither swept nor predicted, largest first, idle time left out."""
        return tuple(o for o in self.operators if not (o.swept or o.predicted) and o.operator != IDLE)

    @property
    def sentence(self) -> str:
        """The shares of kernel sum and of wall, and the largest operators outside, in one sentence."""
        parts = []
        for verb, what in (("sweep", "swept"), ("predict", "predicted")):
            shown = f"{_percent(self.share(what, 'sum_ns'))} of kernel time"
            parts.append(f"{verb} {shown} ({_percent(self.share(what, 'wall_ns'))} of wall)")
        total = sum(row.sum_ns for row in self.operators) or 1
        rest = ", ".join(f"{row.operator} {_percent(row.sum_ns / total)}" for row in self.rest[:SHOWN])
        more = len(self.rest) - SHOWN
        rest += f" and {more} more" if more > 0 else ""
        return f"Of these steps the catalogue can {' and '.join(parts)}" + (
            f"; outside: {rest}." if rest else "."
        )


def decode_coverage(kernels: pa.Table, npu_arch: str = DAV_2201) -> Coverage:
    """Coverage of the steps in a ``kernels`` table (its columns by the contract); empty for an empty one.

    Sums are over kernels, so overlapping streams count twice; wall time is owned by one kernel at each
    instant (``exposed_times``), so its shares add up to the steps. A kernel without operator type goes by
    its name, and communication by its category.
    """
    named = pc.coalesce(kernels["op_type"], kernels["name"], pa.scalar("unnamed"))
    communicates = pc.is_in(kernels["category"], value_set=pa.array(COMMUNICATION))
    place = kernels.schema.get_field_index("category")
    by_operator = kernels.set_column(place, "category", pc.if_else(communicates, kernels["category"], named))
    table = kernels.append_column("operator", by_operator["category"])
    timed = by_operator.filter(pc.is_valid(by_operator["start_ns"]))
    rows = sql(_ROWS, {"kernels": table, "exposed": exposed_times(timed)}).to_pylist()
    swept, predicted = swept_types(), predicted_types(npu_arch)
    known_wall = timed.num_rows == kernels.num_rows
    return Coverage(
        tuple(
            OperatorTime(
                row["operator"], row["kernels"], row["sum_ns"],
                (row["wall_ns"] or 0) if known_wall else None,
                row["operator"] in swept, row["operator"] in predicted,
            )
            for row in rows
        )
    )  # fmt: skip


def swept_types() -> frozenset[str]:
    """Operator types that an experiment measures."""
    return frozenset(name for names in MAIN_KERNELS.values() for name in names)


def predicted_types(npu_arch: str) -> frozenset[str]:
    """Operator types whose host tiling is restated for an architecture."""
    types = {call.op_type for call, arch in BRANCHES if arch == npu_arch}
    return frozenset(types | {"DynamicQuantV2"})


def _percent(share: float | None) -> str:
    return "an unknown share" if share is None else f"{share:.1%}"
