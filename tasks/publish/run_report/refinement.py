"""The command that measures what cliffs lack: both sides of each boundary and the next aligned value."""

from __future__ import annotations

import pyarrow as pa

from tilewatch.tasks.sql import sql

_WANTED = """
SELECT r.experiment, r.build, r.agent, r.preset,
       list_sort(list_distinct(flatten(list(list_concat([c.before, c.after], c.measure_next))))) AS axis
FROM cliffs c JOIN runs r USING (run_id, experiment)
WHERE len(c.measure_next) > 0 GROUP BY ALL ORDER BY ALL
"""


def refinement_commands(cliffs: pa.Table, runs: pa.Table) -> list[str]:
    """One command an experiment and build, over all its cliffs that ask for more points; sorted.

    A curve is judged within one run, so the boundary itself is measured again beside what is missing.
    """
    rows = sql(_WANTED, {"cliffs": cliffs, "runs": runs}).to_pylist()
    return [
        f"tilewatch run {row['experiment']} --axis {','.join(map(str, row['axis']))} "
        f"--preset {row['preset']} --agent {row['agent']} --build {row['build']}"
        for row in rows
    ]
