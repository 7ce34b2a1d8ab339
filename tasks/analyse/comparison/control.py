"""The A/A control of a sweep: its own build against itself in the same lease.

It is judged by the statistics, limits and rule of the table it stands above. Both halves of a pair share
their lease, so it tells the error rate of verdicts within a lease; rows between leases add a variance of
leases to the same test (``verdicts``), which no control inside one sweep can check: archived A/A runs do.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.tasks.analyse.comparison.pairing import as_pairs, pair, side
from tilewatch.tasks.analyse.comparison.verdicts import judge
from tilewatch.tasks.analyse.statistics.limits import ComparisonLimits, ControlLimits
from tilewatch.tasks.analyse.tables import RunTables


@dataclass(frozen=True)
class Control:
    """Error rate of a sweep's A/A control; ``status`` is ok, insufficient or void."""

    pairs: int
    false_pairs: int
    status: str

    @property
    def false_rate(self) -> float | None:
        """Share of pairs called FASTER or SLOWER; None without pairs."""
        return self.false_pairs / self.pairs if self.pairs else None


def control_table(tables: RunTables, limits: ComparisonLimits | None = None) -> pa.Table:
    """One row per (run, experiment, arm, point) with control processes: control against main of the run.

    Columns run_id, experiment, arm, point_id, base_processes, candidate_processes, ratio, p_value, q_value,
    verdict, verdict_reason. Each run is a table of its own for the false discovery rate.
    """
    limits = limits or ComparisonLimits()
    controlled = tables.captures.filter(pc.equal(tables.captures["role"], "control"))["run_id"]
    runs = sorted(pc.unique(controlled).to_pylist())
    parts = [_one_run(run, tables.only("run_id", [run]), limits) for run in runs]
    return pa.concat_tables(parts) if parts else _SCHEMA.empty_table()


def control(
    table: pa.Table, limits: ControlLimits | None = None, *, min_processes: int | None = None
) -> Control:
    """Count the rows of ``control_table`` that had enough processes, and how many were called different."""
    limits = limits or ControlLimits()
    enough = ComparisonLimits().min_processes if min_processes is None else min_processes
    fewest = pc.min_element_wise(table["base_processes"], table["candidate_processes"])
    judged = table.filter(pc.greater_equal(fewest, enough))
    false = pc.sum(pc.is_in(judged["verdict"], value_set=pa.array(["FASTER", "SLOWER"]))).as_py() or 0
    pairs = judged.num_rows
    if pairs < limits.min_pairs:
        return Control(pairs, false, "insufficient")
    return Control(pairs, false, "void" if false / pairs > limits.max_false_rate else "ok")


def _one_run(run: str, tables: RunTables, limits: ComparisonLimits) -> pa.Table:
    main, again = side(tables), side(tables, "control")
    rows = pair(main, again, arms=None, history=None)
    rows = rows.filter(pc.greater(pc.fill_null(rows["c_processes"], 0), 0))
    judged = judge(as_pairs(rows), limits)
    ratio = pc.exp(pa.array(judged.test.difference, from_pandas=True))
    columns = [
        pa.repeat(run, rows.num_rows),
        rows["experiment"],
        rows["base_arm"],
        rows["point_id"],
        pc.fill_null(rows["b_processes"], 0),
        rows["c_processes"],
        ratio,
        pa.array(judged.test.p_value, from_pandas=True),
        pa.array(judged.q_value, from_pandas=True),
        pa.array(judged.verdict, pa.string()),
        pa.array(judged.reason, pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


_SCHEMA = pa.schema(
    [
        pa.field("run_id", pa.string()),
        pa.field("experiment", pa.string()),
        pa.field("arm", pa.string()),
        pa.field("point_id", pa.string()),
        pa.field("base_processes", pa.int64()),
        pa.field("candidate_processes", pa.int64()),
        pa.field("ratio", pa.float64()),
        pa.field("p_value", pa.float64()),
        pa.field("q_value", pa.float64()),
        pa.field("verdict", pa.string()),
        pa.field("verdict_reason", pa.string()),
    ]
)
