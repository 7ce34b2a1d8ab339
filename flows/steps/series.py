"""Series over the archived builds: brought up to what is archived, and what happened in them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.flows.steps.baselines import TABLES
from tilewatch.infra.errors import TableError
from tilewatch.infra.tables import TableStore
from tilewatch.tasks.analyse.series.point_history import history_of, point_history
from tilewatch.tasks.analyse.series.series import series_table
from tilewatch.tasks.analyse.statistics.limits import ANALYSIS_VERSION
from tilewatch.tasks.analyse.statistics.spread import history_spread
from tilewatch.tasks.analyse.tables import RunTables
from tilewatch.tasks.sql import sql

ATTEMPTS = 5
"""Rounds until what is stored is what the archive says; each round but the last was overtaken by a writer."""

_CHANGED = """
SELECT DISTINCT run_id FROM (
    (SELECT * FROM fresh EXCEPT SELECT * FROM stored)
    UNION ALL (SELECT * FROM stored EXCEPT SELECT * FROM fresh)
) ORDER BY run_id
"""

_EVENTS = """
SELECT s.event, s.experiment, s.arm, p.linear, p.axis, p.axis_value, p.allocation_regime, p.group_shape,
       s.build, s.run_id, s.position, s.segment, s.value_ns, s.reference_ns, s.ratio, s.fence_ratio,
       s.fence_reason, s.processes, s.agent, s.evidence, s.point_id,
       make_timestamp(s.started_ns // 1000) AS started_utc
FROM series s LEFT JOIN points p USING (run_id, experiment, arm, point_id)
WHERE ($1 OR s.event <> 'none') AND ($2 = '' OR s.experiment = $2) AND ($3 = '' OR p.linear = $3)
ORDER BY s.experiment, s.arm, p.linear, p.axis_value, p.allocation_regime, p.group_shape, s.point_id,
         s.agent, s.evidence, s.position
"""


def follow(tables: TableStore, renewed: Sequence[str] = ()) -> tuple[str, ...]:
    """Bring table ``series`` up to the archived runs; returns the runs whose rows are other ones now.

    Point values of runs that the table does not know, and of those in ``renewed``, come from their samples;
    those of the others from the table itself, so that one more run costs one run. Void runs take no part.
    Again without news it writes nothing. Where another writer stores a run meanwhile, both are put in order.
    """
    changed: set[str] = set()
    for _ in range(ATTEMPTS):
        runs, stored = _taking_part(tables), tables.scan("series")
        fresh = _fresh(tables, runs, stored, renewed)
        different = sql(_CHANGED, {"fresh": fresh, "stored": stored})["run_id"].to_pylist()
        if not different:
            return tuple(sorted(changed))
        wanted = pa.array(different, pa.string())
        rows = fresh.filter(pc.is_in(fresh["run_id"], value_set=wanted))
        tables.write("series", rows, emptied={"run_id": different})
        changed |= set(different)
        renewed = ()
    raise TableError("table series: other runs kept being archived meanwhile", "Run it again")


def events(tables: TableStore, *, every: bool, experiment: str = "", linear: str = "") -> pa.Table:
    """What happened in the series, a row a point and run, by point and then by time.

    With ``every`` also the values at which nothing happened; ``experiment`` (its name) and ``linear`` narrow.
    """
    names = ["run_id", "experiment", "arm", "point_id", "linear", "axis", "axis_value"]
    points = tables.scan("points", columns=[*names, "allocation_regime", "group_shape"])
    return sql(_EVENTS, {"series": tables.scan("series"), "points": points}, [every, experiment, linear])


def _taking_part(tables: TableStore) -> pa.Table:
    runs = tables.scan("runs")
    return runs.filter(pc.and_(pc.not_equal(runs["status"], "void"), pc.greater(runs["sample_count"], 0)))


def _fresh(tables: TableStore, runs: pa.Table, stored: pa.Table, renewed: Sequence[str]) -> pa.Table:
    kept = stored.filter(
        pc.and_(
            pc.and_(
                pc.is_in(stored["run_id"], value_set=runs["run_id"].combine_chunks()),
                pc.invert(pc.is_in(stored["run_id"], value_set=pa.array(list(renewed), pa.string()))),
            ),
            pc.equal(stored["analysis_version"], ANALYSIS_VERSION),
        )
    )
    unknown = sorted(set(runs["run_id"].to_pylist()) - set(kept["run_id"].to_pylist()))
    parts = [history_of(kept, runs), *(_measured(tables, run_id) for run_id in unknown)]
    history = pa.concat_tables(parts, promote_options="default")
    return series_table(history, spreads=history_spread(history))


def _measured(tables: TableStore, run_id: str) -> pa.Table:
    of_run = {name: tables.scan(name, [("run_id", "==", run_id)]) for name in TABLES}
    return point_history([RunTables(**of_run)])
