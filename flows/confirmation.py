"""Measure and compare, and measure a second time what got slower: nobody is alarmed by a single lease."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from tilewatch.flows.compare import compare
from tilewatch.flows.side_by_side import side_by_side
from tilewatch.flows.steps.judge import Comparison
from tilewatch.flows.steps.report import SweepReport
from tilewatch.flows.steps.requests import CompareRequest, SweepRequest
from tilewatch.flows.sweep import sweep


@dataclass(frozen=True)
class Measured:
    """The build under test, and the one before where both were arms of one sweep."""

    candidate: SweepReport
    before: SweepReport | None


def measure(asked: SweepRequest) -> Measured:
    """Sweep the build under test; where several stand side by side, the first and the last as arms of one."""
    if len(asked.environments) < 2:
        return Measured(sweep(asked), None)
    both = asked.model_copy(update={"environments": (asked.environments[0], asked.environments[-1])})
    before, candidate = side_by_side(both).sweeps
    return Measured(candidate, before)


def compare_confirmed(request: CompareRequest, asked: SweepRequest, measured: SweepReport) -> Comparison:
    """Compare; where something is SLOWER, sweep those experiments in another lease and compare with both."""
    first = compare(request)
    slower = first.rows.filter(pc.equal(first.rows["verdict"], "SLOWER"))
    if not slower.num_rows:
        return first
    letters = tuple(sorted(set(slower["experiment"].to_pylist())))
    again = measure(
        asked.model_copy(
            update={
                "experiments": letters,
                "build": None if asked.environments else measured.build,
                "seed": 0,
                "resume": None,
                "command": f"confirms {measured.run_id}",
            }
        )
    )
    return compare(request.model_copy(update={"second_lease": again.candidate.run_id}))
