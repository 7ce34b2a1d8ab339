"""Where the time of a serving phase goes: exposed time by category and idle, over the steps of each phase."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import conform
from tilewatch.tasks.analyse.savings.exposed import COMMUNICATION, owned
from tilewatch.tasks.analyse.statistics.limits import ANALYSIS_VERSION
from tilewatch.tasks.sql import sql

# Kernels and marks of one profiler run stand in files of one output folder; a stage profile holds both.
_RUN = r"regexp_replace({}.source_file, '/(ASCEND_PROFILER_OUTPUT|mindstudio_profiler_output)/[^/]*$', '')"

_SORTED = f"""
WITH s AS (SELECT *, {_RUN.format("stage_steps")} AS profile FROM stage_steps),
k AS (
    SELECT capture_id, {_RUN.format("kernels")} AS profile, step_id, coalesce(device_id, -1) AS device_id,
           coalesce(category, 'other') AS category, start_ns, start_ns + duration_ns AS end_ns
    FROM kernels WHERE start_ns IS NOT NULL AND step_id IS NOT NULL
), joined AS (
    SELECT k.capture_id, k.profile, k.step_id, k.device_id, k.category, s.phase, s.bounds_kernels,
           CASE WHEN s.bounds_kernels THEN greatest(k.start_ns, s.start_ns) ELSE k.start_ns END AS start_ns,
           CASE WHEN s.bounds_kernels THEN least(k.end_ns, s.end_ns) ELSE k.end_ns END AS end_ns
    FROM k JOIN s USING (capture_id, profile, step_id)
)
SELECT *, list_contains($1, category) AS communicates,
       dense_rank() OVER (ORDER BY capture_id, profile, device_id, step_id) - 1 AS step
FROM joined WHERE end_ns >= start_ns
ORDER BY step, start_ns, end_ns, category
"""

_SUMMED = f"""
WITH s AS (SELECT *, {_RUN.format("stage_steps")} AS profile FROM stage_steps),
device_steps AS (
    SELECT capture_id, phase, profile, device_id, step_id, max(end_ns) - min(start_ns) AS step_ns
    FROM owned WHERE NOT bounds_kernels GROUP BY ALL
), every_step AS (
    SELECT capture_id, phase, step_ns FROM device_steps
    UNION ALL SELECT capture_id, phase, end_ns - start_ns FROM s WHERE bounds_kernels
), phase AS (
    SELECT capture_id, phase, count(*) AS steps, sum(step_ns) AS step_ns FROM every_step GROUP BY ALL
), category AS (
    SELECT capture_id, phase, category, count(*) AS kernels, sum(end_ns - start_ns) AS busy_ns,
           sum(exposed_ns) AS exposed_ns
    FROM owned GROUP BY ALL
), every AS (
    SELECT * FROM category
    UNION ALL
    SELECT p.capture_id, p.phase, 'idle', 0, 0, any_value(p.step_ns) - coalesce(sum(c.exposed_ns), 0)
    FROM phase p LEFT JOIN category c USING (capture_id, phase) GROUP BY p.capture_id, p.phase
), capture AS (
    SELECT DISTINCT capture_id, run_id, build, build_id, experiment, arm, process_index, evidence
    FROM stage_steps
)
SELECT c.*, e.phase, e.category, p.steps, e.kernels, e.busy_ns::BIGINT AS busy_ns,
       e.exposed_ns::BIGINT AS exposed_ns, p.step_ns::BIGINT AS step_ns, $1 AS analysis_version
FROM every e JOIN capture c USING (capture_id) JOIN phase p USING (capture_id, phase)
ORDER BY capture_id, phase, category = 'idle', category
"""


def phase_costs(kernels: pa.Table, stage_steps: pa.Table) -> pa.Table:
    """A ``phase_costs`` table of ``kernels`` whose ``step_id`` is that of a row of ``stage_steps``.

    Every instant of a step belongs to one category by the rule of ``exposed_times``, or is idle, so that the
    exposed times of a phase add up to the wall time of its steps. That is the marked range where kernels run
    inside it; where the host only enqueues them there it is, on each device, from the first start to the last
    end: what the device waits between two steps belongs to no step. Kernels outside of steps do not count.
    """
    rows = sql(_SORTED, {"kernels": kernels, "stage_steps": stage_steps}, [list(COMMUNICATION)])
    parts = owned(rows)
    return conform(
        "phase_costs", sql(_SUMMED, {"owned": parts, "stage_steps": stage_steps}, [ANALYSIS_VERSION])
    )


def outside_stages(kernels: pa.Table, stage_steps: pa.Table) -> pa.Table:
    """``kernels`` without those of stage profiles: their steps are counted by file, not by capture."""
    own = stage_steps.filter(stage_steps["bounds_kernels"])["source_file"].combine_chunks()
    if not len(own):
        return kernels
    return kernels.filter(pc.invert(pc.is_in(kernels["source_file"], value_set=own)))
