"""Approved baselines in the archive: who approved which build when and why, and which one is armed.

Every approval is kept under a name of its own, ``<build>@<ULID>``; the newest one of a device class and agent
is armed and is what ``@baseline`` stands for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa

from tilewatch.flows.steps.run_names import NothingToCompareError, newest
from tilewatch.infra import spool
from tilewatch.infra.archive import Archive
from tilewatch.tasks.analyse.comparison.baselines import approve
from tilewatch.tasks.analyse.tables import RunTables
from tilewatch.tasks.sql import sql

ARMED = "@baseline"
TABLES = ("runs", "captures", "points", "samples", "alignments")
APPROVE_HINT = "Approve one: tilewatch baseline approve BUILD --reason WHY"

_APPROVALS = """
SELECT name, build, device_class, agent, list_sort(list(DISTINCT experiment)) AS experiments,
       count(*) AS points, approved_by, reason, make_timestamp(approved_ns // 1000) AS approved_utc,
       row_number() OVER (PARTITION BY device_class, agent ORDER BY approved_ns DESC, name DESC) = 1 AS armed,
       any_value(run_ids) AS run_ids
FROM baselines GROUP BY name, build, device_class, agent, approved_by, reason, approved_ns
ORDER BY approved_ns DESC, name DESC
"""


@dataclass(frozen=True)
class Baseline:
    """One approval: the build and the archived runs that a candidate is held against."""

    name: str
    build: str
    run_ids: tuple[str, ...]


def approve_build(archive: Archive, build: str, *, approved_by: str, reason: str) -> pa.Table:
    """Approve the newest runs of ``build`` (or one run) and store the approval; returns its rows.

    Raises NothingToCompareError for an unknown name and AnalysisError for runs that cannot carry a verdict.
    """
    runs = archive.tables.scan("runs")
    of_build = [("run_id", "in", newest(runs, build))]
    tables = RunTables(**{t: archive.tables.scan(t, of_build) for t in TABLES})
    label = tables.distinct("build")[-1]
    rows = approve(
        tables,
        name=f"{label}@{spool.new_run_id()}",
        approved_by=approved_by,
        reason=reason,
        approved_ns=time.time_ns(),
    )
    archive.tables.write("baselines", rows)
    return rows


def approvals(archive: Archive) -> pa.Table:
    """One row an approval, newest first, with its ``experiments``, how many ``points``, and ``armed``."""
    return sql(_APPROVALS, {"baselines": archive.tables.scan("baselines")})


def armed(archive: Archive, device_class: str, agent: str) -> Baseline:
    """The baseline that candidates of this device class and agent are held against.

    Raises NothingToCompareError if none was approved.
    """
    for row in approvals(archive).to_pylist():
        if row["armed"] and (row["device_class"], row["agent"]) == (device_class, agent):
            return Baseline(row["name"], row["build"], tuple(row["run_ids"]))
    raise NothingToCompareError(
        f"not armed: no baseline is approved for {device_class}, agent {agent}", APPROVE_HINT
    )


def baseline_runs(archive: Archive, name: str, device_class: str, agent: str) -> tuple[str, tuple[str, ...]]:
    """Label and run ids that ``name`` stands for where it is a baseline: the armed one, a label or a run.

    Raises NothingToCompareError.
    """
    if name == ARMED:
        found = armed(archive, device_class, agent)
        return found.build, found.run_ids
    return name, tuple(newest(archive.tables.scan("runs"), name))


def refuse_unarmed(archive: Archive) -> None:
    """Raise NothingToCompareError if nothing was ever approved."""
    if not archive.tables.scan("baselines").num_rows:
        raise NothingToCompareError("not armed: no baseline is approved", APPROVE_HINT)
