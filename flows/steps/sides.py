"""The two sides of a comparison: the archived runs that names stand for, and what their floor rests on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.flows.steps.baselines import baseline_runs
from tilewatch.flows.steps.run_names import NothingToCompareError, newest
from tilewatch.infra.archive import Archive
from tilewatch.tasks.analyse.comparison.keys import check_names
from tilewatch.tasks.analyse.comparison.serving_groups import OVERRIDABLE as SERVING_KEYS

Ids = tuple[Sequence[str], Sequence[str]]


@dataclass(frozen=True)
class Sides:
    """Names as they are published, and the run ids of each side; ``runs`` is the table of that name."""

    baseline: str
    candidate: str
    base_ids: tuple[str, ...]
    candidate_ids: tuple[str, ...]
    runs: pa.Table

    @property
    def ids(self) -> tuple[str, ...]:
        """Run ids of both sides."""
        return (*self.base_ids, *self.candidate_ids)

    def rows(self, ids: Collection[str]) -> pa.Table:
        """The rows of ``runs`` with these ids."""
        return self.runs.filter(pc.is_in(self.runs["run_id"], value_set=pa.array(sorted(ids), pa.string())))

    def components(self, ids: Collection[str]) -> dict[str, str]:
        """Components of the build that one side ran on."""
        return dict(self.rows(ids)["build_components"][0].as_py() or [])

    def plan_hashes(self) -> tuple[str, ...]:
        """Hashes of the plans of both sides."""
        return tuple(sorted(set(self.rows(self.ids)["plan_hash"].to_pylist())))

    def others(self, without: Collection[str] = ()) -> list[str]:
        """Every other run on the candidate's device class: the spread between leases comes from these.

        What is being judged is left out, and so is ``without``: a floor must not rest on what it judges.
        """
        classes = pc.unique(self.rows(self.candidate_ids)["device_class"])
        alike = self.runs.filter(pc.is_in(self.runs["device_class"], value_set=classes))
        usable = alike.filter(pc.not_equal(alike["status"], "void"))
        return sorted(set(usable["run_id"].to_pylist()) - {*self.ids, *without})


def both_sides(archive: Archive, baseline: str, candidate: str, ids: Ids | None = None) -> Sides:
    """Runs of both sides: those in ``ids``, else the newest run of each experiment that the names stand for.

    A name is a run id or a build label; ``@baseline`` is the approved one of the candidate's device class.
    Raises NothingToCompareError where a name stands for nothing, or both for the same run.
    """
    runs = archive.tables.scan("runs")
    candidate_ids = tuple(ids[1] if ids else newest(runs, candidate))
    if ids is None:
        first = runs.filter(pc.equal(runs["run_id"], candidate_ids[0])).slice(0, 1).to_pylist()[0]
        baseline, base_ids = baseline_runs(archive, baseline, first["device_class"], first["agent"])
    else:
        base_ids = tuple(ids[0])
    sides = Sides(baseline, candidate, base_ids, candidate_ids, runs)
    if set(base_ids) & set(candidate_ids):
        raise NothingToCompareError(
            f"{baseline} and {candidate} stand for the same run", "Name two builds, or two runs"
        )
    if gone := sorted(set(sides.ids) - set(runs["run_id"].to_pylist())):
        raise NothingToCompareError(f"run {gone[0]} is not in the archive any more")
    return sides


def refuse_at_once(archive: Archive, baseline: str, candidate: str, overrides: Sequence[str]) -> None:
    """What a comparison would refuse after it began: an unknown key, a name that stands for nothing, one run.

    Raises AnalysisError or NothingToCompareError.
    """
    check_names(set(overrides) - set(SERVING_KEYS), "overrides")
    both_sides(archive, baseline, candidate)
