"""From the raw captures of a serving experiment to its tables. Pure, as ``derive``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.align.runs import of_any_run, without_capture
from tilewatch.tasks.analyse.gates.serving_conclusions import serving_conclusions
from tilewatch.tasks.derive.joined import joined
from tilewatch.tasks.plan.run_document import RunDocument
from tilewatch.tasks.plan.serving_plan import ServingPlan
from tilewatch.tasks.read.captures.server_capture import read_launch

PER_LAUNCH = (
    "captures", "launches", "requests", "serving_metrics", "kernels", "stage_steps", "quarantine",
)  # fmt: skip
NO_CONTROL = "none"
"""Control status of serving: launches of an arm are compared with each other instead of A/A pairs."""


def serving_tables(
    document: RunDocument, letter: str, folders: Sequence[tuple[Path, str]], ledger: pa.Table | None = None
) -> dict[str, pa.Table]:
    """Tables of one serving experiment of a run: folders of its captures with their raw prefixes.

    ``ledger`` has rows of the same build, for the saving that operators predict. Raises CaptureError for a
    folder whose files disagree with its manifest; bad rows go to ``quarantine``.
    """
    plan = document.serving[letter]
    read = [read_launch(folder, raw_prefix=prefix) for folder, prefix in folders]
    tables = {name: joined(name, [getattr(one, name) for one in read]) for name in PER_LAUNCH}
    tables |= serving_conclusions(tables, plan.order, plan.gates, ledger=ledger)
    tables["runs"] = from_rows("runs", [_runs_row(document, plan, tables)])
    return tables


def _runs_row(document: RunDocument, plan: ServingPlan, tables: Mapping[str, pa.Table]) -> dict[str, Any]:
    """The run counted: a process is a launch, a point is an arm, missing where no launch of it was timed."""
    launches = tables["launches"]
    rows = launches.select(["arm", "role", "status"]).to_pylist()
    complete = [row for row in rows if row["status"] == "complete"]
    measured = {row["arm"] for row in complete if row["role"] == "timing"}
    missing = len(plan.arms) - len(measured)
    status, reason = _status(len(plan.launches), len(complete), sorted(set(plan.arms) - measured))
    return {
        **of_any_run(document, tables["captures"]),
        "experiment": plan.experiment,
        "plan_hash": plan.plan_hash,
        "method_hash": plan.method_hash,
        "method_version": plan.method["method_version"],
        "status": status,
        "status_reason": reason,
        "planned_processes": len(plan.launches),
        "accounted_processes": len(rows) + without_capture(plan.launches, launches),
        "planned_points": len(plan.arms),
        "accounted_points": len(measured) + missing,
        "missing_points": missing,
        "sample_count": tables["requests"].num_rows,
        "quarantined_rows": tables["quarantine"].num_rows,
        "control_pairs": 0,
        "control_false_pairs": 0,
        "control_status": NO_CONTROL,
    }


def _status(planned: int, complete: int, missing: Sequence[str]) -> tuple[str, str | None]:
    if complete == 0:
        return "failed", "no launch completed"
    if complete < planned:
        arms = f"; not measured: {', '.join(missing)}" if missing else ""
        return "incomplete", f"{planned - complete} of {planned} launches did not complete{arms}"
    return "complete", None
