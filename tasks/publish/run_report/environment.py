"""What stood under the numbers: runs, builds, devices, method, and the state of the machine."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from tilewatch.tasks.builds.packages import mixes
from tilewatch.tasks.publish.display import count, duration, experiment_name

_SHOWN_VALUES = 3


def machine_rows(runs: pa.Table) -> list[dict[str, str]]:
    """One row a run: what it ran on, with what, and how its numbers were taken."""
    rows = {
        run["run_id"]: {
            "run_id": run["run_id"],
            "evidence": f"{run['evidence']}, agent {run['agent']}",
            "device": f"{run['device_class']}, {run['device']}",
            "host": run["host"],
            "build": f"{run['build']} ({run['build_id']})",
            "method": f"{run['method_hash']}, version {run['method_version']}",
        }
        for run in runs.to_pylist()
    }
    return [rows[run_id] for run_id in sorted(rows)]


def run_rows(runs: pa.Table) -> list[dict[str, Any]]:
    """One row a run and experiment: how much, when, the time in operators, the command that repeats it."""
    return [
        {
            "run_id": run["run_id"],
            "experiment": experiment_name(run["experiment"]),
            "plan": run["plan_hash"],
            "preset": f"{run['preset']}, seed {run['seed']}",
            "started": _time(run["started_ns"]),
            "took": duration(run["ended_ns"] - run["started_ns"]),
            "in_operators": _share(run["operator_time_ns"], run["wall_time_ns"]),
            "points": count(run["planned_points"], "point"),
            "processes": count(run["planned_processes"], "process"),
            "status": run["status"],
            "command": run["command"],
        }
        for run in sorted(runs.to_pylist(), key=lambda r: (r["run_id"], r["experiment"]))
    ]


def build_rows(runs: pa.Table) -> list[tuple[str, list[tuple[str, str]]]]:
    """Components of each build, by label."""
    builds = {
        f"{run['build']} ({run['build_id']})": sorted(run["build_components"] or [])
        for run in runs.to_pylist()
    }
    return sorted(builds.items())


def mixed_builds(runs: pa.Table) -> list[str]:
    """One sentence for every operator package that is of another release than its build's CANN."""
    found = {
        f"Build {run['build']}: {sentence}."
        for run in runs.to_pylist()
        for sentence in mixes(dict(run["build_components"] or []))
    }
    return sorted(found)


def environment_rows(captures: pa.Table) -> list[tuple[str, str]]:
    """Every entry of the captures' environment; where processes differ, the values seen and how many."""
    seen: dict[str, set[str]] = {}
    for entries in captures["environment"].to_pylist():
        for name, value in entries or []:
            seen.setdefault(name, set()).add(str(value))
    return sorted((name, _values(values)) for name, values in seen.items())


def _values(values: Iterable[str]) -> str:
    ordered = sorted(values)
    if len(ordered) <= _SHOWN_VALUES:
        return " | ".join(ordered)
    return f"{' | '.join(ordered[:_SHOWN_VALUES])} | and {len(ordered) - _SHOWN_VALUES} more"


def _share(part_ns: int | None, whole_ns: int | None) -> str:
    if part_ns is None or not whole_ns:
        return "not recorded"
    return f"{duration(part_ns)} ({part_ns / whole_ns:.0%})"


def _time(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M UTC")
