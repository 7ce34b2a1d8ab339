"""The ``runs`` row of one experiment: the plan against what is there, counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.plan.plan import Process
from tilewatch.tasks.plan.run_document import RunDocument
from tilewatch.tasks.plan.serving_plan import Launch

_OF_THE_DOCUMENT = (
    "run_id", "build", "build_id", "agent", "evidence", "preset", "device", "device_class", "host", "seed",
    "command",
)  # fmt: skip


@dataclass(frozen=True)
class ControlCount:
    """A/A control of one experiment: pairs judged, pairs called different, and what that means."""

    pairs: int
    false_pairs: int
    status: str


def of_any_run(document: RunDocument, captures: pa.Table) -> dict[str, Any]:
    """Columns of ``runs`` that operators and servers have alike: identity, lease and times."""
    leases = captures["lease_id"].to_pylist()
    return {
        **{name: getattr(document, name) for name in _OF_THE_DOCUMENT},
        "build_components": dict(document.components),
        "lease_id": min(leases, default="none"),
        "started_ns": pc.min(captures["started_ns"]).as_py() or document.started_ns,
        "ended_ns": pc.max(captures["ended_ns"]).as_py() or document.started_ns,
        "wall_time_ns": pc.sum(pc.subtract(captures["ended_ns"], captures["started_ns"])).as_py(),
    }


def without_capture(planned: Sequence[Process] | Sequence[Launch], left: pa.Table) -> int:
    """Planned processes or launches that ``left`` has no row of, by arm, role and process index."""
    names = set(zip(*(left[c].to_pylist() for c in ("arm", "role", "process_index")), strict=True))
    return sum((one.arm, one.role, one.process_index) not in names for one in planned)


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
        **of_any_run(document, captures),
        "experiment": experiment,
        "method_hash": document.method_hash,
        "method_version": document.method_version,
        "plan_hash": plan.plan_hash,
        "status": status,
        "status_reason": reason,
        "planned_processes": len(plan.processes),
        "accounted_processes": captures.num_rows + without_capture(plan.processes, captures),
        "planned_points": sum(len(p) for p in plan.points.values()),
        "accounted_points": present + missing,
        "missing_points": missing,
        "sample_count": tables["samples"].num_rows,
        "quarantined_rows": quarantined_rows,
        "control_pairs": control.pairs,
        "control_false_pairs": control.false_pairs,
        "control_status": control.status,
        "operator_time_ns": pc.sum(observed["operator_time_ns"]).as_py(),
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
