"""The ``runs`` row of one experiment: the plan against what is there, counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.plan.plan import Plan
from tilewatch.tasks.plan.run_document import RunDocument

_OF_THE_DOCUMENT = (
    "run_id", "build", "build_id", "agent", "evidence", "preset", "device", "device_class", "host",
    "method_hash", "method_version", "seed", "command",
)  # fmt: skip


@dataclass(frozen=True)
class ControlCount:
    """A/A control of one experiment: pairs judged, pairs called different, and what that means."""

    pairs: int
    false_pairs: int
    status: str


def runs_row(
    document: RunDocument,
    experiment: str,
    tables: Mapping[str, pa.Table],
    observed: pa.Table,
    *,
    quarantined_rows: int,
    control: ControlCount,
) -> pa.Table:
    """One ``runs`` row of ``experiment``. ``tables`` holds its captures, points and samples."""
    captures, points = tables["captures"], tables["points"]
    plan = document.plans[experiment]
    complete = pc.sum(pc.equal(captures["status"], "complete")).as_py() or 0
    missing = pc.sum(pc.equal(points["status"], "missing")).as_py() or 0
    present = points.num_rows - missing
    status, reason = _status(len(plan.processes), complete, missing, control)
    row: dict[str, Any] = {
        **{name: getattr(document, name) for name in _OF_THE_DOCUMENT},
        "experiment": experiment,
        "build_components": dict(document.components),
        "plan_hash": plan.plan_hash,
        "lease_id": _lease(captures),
        "status": status,
        "status_reason": reason,
        "started_ns": pc.min(captures["started_ns"]).as_py() or document.started_ns,
        "ended_ns": pc.max(captures["ended_ns"]).as_py() or document.started_ns,
        "planned_processes": len(plan.processes),
        "accounted_processes": captures.num_rows + _without_capture(plan, captures),
        "planned_points": sum(len(p) for p in plan.points.values()),
        "accounted_points": present + missing,
        "missing_points": missing,
        "sample_count": tables["samples"].num_rows,
        "quarantined_rows": quarantined_rows,
        "control_pairs": control.pairs,
        "control_false_pairs": control.false_pairs,
        "control_status": control.status,
        "operator_time_ns": pc.sum(observed["operator_time_ns"]).as_py(),
        "wall_time_ns": _wall_time_ns(captures),
    }
    return from_rows("runs", [row])


def _status(planned: int, complete: int, missing: int, control: ControlCount) -> tuple[str, str | None]:
    if control.status == "void":
        return "void", f"{control.false_pairs} of {control.pairs} A/A control pairs were called different"
    if complete == 0:
        return "failed", "no process completed"
    if complete < planned or missing:
        return "incomplete", f"{planned - complete} of {planned} processes and {missing} points are missing"
    return "complete", None


def _without_capture(plan: Plan, captures: pa.Table) -> int:
    """Planned processes that left no capture; a capture that was not planned, or twice, counts on top."""
    names = zip(*(captures[c].to_pylist() for c in ("arm", "role", "process_index")), strict=True)
    left = set(names)
    return sum((p.arm, p.role, p.process_index) not in left for p in plan.processes)


def _lease(captures: pa.Table) -> str:
    leases = sorted(set(captures["lease_id"].to_pylist()))
    return leases[0] if leases else "none"


def _wall_time_ns(captures: pa.Table) -> int | None:
    total = pc.sum(pc.subtract(captures["ended_ns"], captures["started_ns"])).as_py()
    return None if total is None else int(total)
