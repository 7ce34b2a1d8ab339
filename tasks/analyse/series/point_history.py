"""Point values of archived runs in the order they were measured: the input of a series."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tilewatch.tasks.analyse.comparison.keys import ENVIRONMENT_KEYS
from tilewatch.tasks.analyse.statistics.process_values import process_values
from tilewatch.tasks.analyse.tables import AnalysisError, RunTables, join
from tilewatch.tasks.sql import sql

COLUMNS = (
    "build", "build_id", "run_id", "evidence", "agent", "experiment", "arm", "point_id", "started_ns",
    "environment", "device", "method_hash", "processes", "value_ns",
)  # fmt: skip
"""Columns of a point history."""

_HISTORY = """
WITH place AS (
    SELECT run_id, experiment, min(environment_text) AS environment FROM (
        SELECT run_id, experiment, concat_ws('; ', 'device ' || device, 'host ' || host,
               'method ' || method_hash, {keys}) AS environment_text
        FROM captures WHERE kind IN ('timing', 'ingested')
    ) GROUP BY ALL
)
SELECT r.build, r.build_id, r.run_id, r.evidence, r.agent, r.experiment, v.arm, v.point_id, r.started_ns,
       p.environment, r.device, r.method_hash, count(*) AS processes, median(v.value_ns) AS value_ns
FROM "values" v JOIN runs r USING (run_id, experiment) JOIN place p USING (run_id, experiment)
WHERE v.value_ns IS NOT NULL
GROUP BY ALL ORDER BY r.agent, r.experiment, v.arm, v.point_id, r.started_ns, r.run_id
"""

_OF_SERIES = """
SELECT s.build, s.build_id, s.run_id, s.evidence, s.agent, s.experiment, s.arm, s.point_id, s.started_ns,
       s.environment, r.device, r.method_hash, s.processes, s.value_ns
FROM series s JOIN runs r USING (run_id, experiment)
ORDER BY s.agent, s.experiment, s.arm, s.point_id, s.started_ns, s.run_id
"""


def history_of(series: pa.Table, runs: pa.Table) -> pa.Table:
    """The point history that a ``series`` table was made of; ``runs`` tells device and method of its runs."""
    return sql(_OF_SERIES, {"series": series, "runs": runs})


def point_history(runs: Sequence[RunTables]) -> pa.Table:
    """One row per (run, experiment, arm, point) with a value, main processes only; columns COLUMNS.

    ``environment`` puts device, host, method and the refusing keys of the captures into one text. What
    belongs to the build under test (driver and firmware too) is not part of it.
    """
    if not runs:
        raise AnalysisError("no archived runs to make a series of")
    tables = join(runs)
    values = process_values(tables.samples, tables.captures, "main")
    keys = ", ".join(f"'{name} ' || environment['{entry}']" for name, entry in ENVIRONMENT_KEYS.items())
    inputs = {"values": values, "runs": tables.runs, "captures": tables.captures}
    return sql(_HISTORY.format(keys=keys), inputs)
