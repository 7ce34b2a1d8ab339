"""The build identity of one side of a comparison, and what changed between two."""

from __future__ import annotations

from dataclasses import dataclass

from tilewatch.tasks.analyse.tables import AnalysisError, RunTables


@dataclass(frozen=True)
class Identity:
    """One build with the runs that measured it."""

    build: str
    build_id: str
    components: dict[str, str]
    run_ids: tuple[str, ...]
    plan_hashes: tuple[str, ...]
    method_hashes: tuple[str, ...]


def identity(tables: RunTables, name: str) -> Identity:
    """The one build of ``tables``; raises AnalysisError naming ``name`` for none or more than one."""
    if not tables.runs.num_rows:
        raise AnalysisError(f"{name}: no runs")
    builds = tables.distinct("build_id")
    if len(builds) > 1:
        raise AnalysisError(f"{name}: runs of {len(builds)} builds ({', '.join(builds)}); choose one")
    # Labels may differ between runs of one build; the last one in order names it.
    return Identity(
        build=tables.distinct("build")[-1],
        build_id=builds[0],
        components=dict(tables.runs["build_components"][0].as_py() or []),
        run_ids=tables.distinct("run_id"),
        plan_hashes=tables.distinct("plan_hash"),
        method_hashes=tables.distinct("method_hash"),
    )
