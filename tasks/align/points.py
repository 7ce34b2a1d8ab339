"""The planned points of a run against what its processes observed: present, partial or missing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tilewatch.data_contracts import conform, from_rows
from tilewatch.tasks.align.least_time import least_time, limits_of, work_of
from tilewatch.tasks.plan.run_document import RunDocument
from tilewatch.tasks.sql import sql

_PLANNED_ONLY = ("weight_format", "dispatched_operator", "strides_x", "strides_w")


def planned_points(document: RunDocument, experiment: str) -> pa.Table:
    """``points`` rows of everything planned, all with status missing."""
    plan = document.plans[experiment]
    processes = {
        arm: sum((p.arm, p.role, p.kind) == (arm, "main", "timing") for p in plan.processes)
        for arm in plan.points
    }
    control = {(arm, point) for arm, points in plan.control.items() for point in points}
    rows = [
        _planned(document, experiment, arm, point, processes[arm], (arm, point["point_id"]) in control)
        for arm, points in plan.points.items()
        for point in points
    ]
    return from_rows("points", rows)


def points_table(document: RunDocument, experiment: str, captures: pa.Table, observed: pa.Table) -> pa.Table:
    """``points`` of one experiment: planned rows with what the main timing processes observed.

    ``observed`` has the schema ``tilewatch.tasks.read.captures.operator_capture.OBSERVED``.

    A format or operator counts as proved only where every process observed the same one; otherwise it is null
    and the reason says so. ``captures`` and ``observed`` may hold other experiments; they are ignored.
    """
    planned = planned_points(document, experiment).drop_columns(
        ["status", "status_reason", "present_processes", *_PLANNED_ONLY]
    )
    joined = sql(_JOIN, {"planned": planned, "captures": captures, "observed": observed})
    return conform("points", joined)


def _planned(
    document: RunDocument, experiment: str, arm: str, point: dict[str, Any], processes: int, control: bool
) -> dict[str, Any]:
    group_list = point["group_list"]
    work = work_of(point)
    least = least_time(work, limits_of(document.device_class), str(document.method.get("cache", "")))
    keys = {k: v for k, v in point.items() if k not in ("operation", "group_list")}
    return {
        **keys,
        "run_id": document.run_id,
        "build": document.build,
        "build_id": document.build_id,
        "experiment": experiment,
        "arm": arm,
        "evidence": document.evidence,
        "control": control,
        "operator": point["operation"],
        "n": None if point["operation"] == "dynamic_quant" else point["n"],
        "group_list": group_list,
        "group_list_sum": None if group_list is None else sum(group_list),
        "moved_bytes": work.moved_bytes,
        "operations": work.operations,
        "least_ns": None if least is None else least.ns,
        "least_bound": None if least is None else least.bound,
        "empty_experts": None if group_list is None else group_list.count(0),
        "max_m_e": None if group_list is None else max(group_list),
        "status": "missing",
        "planned_processes": processes,
        "present_processes": 0,
        "command": document.point_command(experiment, arm, point["point_id"]),
    }


_JOIN = """
WITH seen AS (
    SELECT c.run_id, c.experiment, c.arm, o.* EXCLUDE (capture_id)
    FROM observed o JOIN captures c USING (capture_id) WHERE c.role = 'main' AND c.kind = 'timing'
), by_point AS (
    SELECT run_id, experiment, arm, point_id,
           count(*) FILTER (WHERE status = 'measured') AS present_processes,
           count(DISTINCT weight_format) FILTER (WHERE status = 'measured') AS formats,
           count(DISTINCT dispatched_operator) FILTER (WHERE status = 'measured') AS operators,
           any_value(weight_format) FILTER (WHERE status = 'measured') AS weight_format,
           any_value(dispatched_operator) FILTER (WHERE status = 'measured') AS dispatched_operator,
           any_value(strides_x) AS strides_x, any_value(strides_w) AS strides_w,
           min(reason) FILTER (WHERE status <> 'measured') AS failure
    FROM seen GROUP BY ALL
)
SELECT p.*,
       CASE WHEN b.formats = 1 THEN b.weight_format END AS weight_format,
       CASE WHEN b.operators = 1 THEN b.dispatched_operator END AS dispatched_operator,
       b.strides_x, b.strides_w,
       CASE WHEN coalesce(b.present_processes, 0) = 0 THEN 'missing'
            WHEN b.present_processes < p.planned_processes THEN 'partial' ELSE 'present' END AS status,
       CASE WHEN b.formats > 1 THEN 'processes loaded different weight formats'
            WHEN b.operators > 1 THEN 'processes dispatched different operators'
            WHEN b.failure IS NOT NULL THEN b.failure
            WHEN coalesce(b.present_processes, 0) = 0 THEN 'no process measured it'
            WHEN b.present_processes < p.planned_processes THEN 'some processes are missing'
            END AS status_reason,
       coalesce(b.present_processes, 0) AS present_processes
FROM planned p LEFT JOIN by_point b USING (run_id, experiment, arm, point_id)
ORDER BY p.arm, p.linear, p.axis_value, p.point_id
"""
