"""Compare, and measure a second time what got slower: nobody is alarmed by a single lease."""

from __future__ import annotations

import pyarrow.compute as pc

from flows.compare import Comparison, compare
from flows.requests import CompareRequest, SweepRequest
from flows.sweep import sweep
from infra.pipeline.report import SweepReport


def compare_confirmed(request: CompareRequest, asked: SweepRequest, measured: SweepReport) -> Comparison:
    """Compare; where something is SLOWER, sweep those experiments in another lease and compare with both."""
    first = compare(request)
    slower = first.rows.filter(pc.equal(first.rows["verdict"], "SLOWER"))
    if not slower.num_rows:
        return first
    letters = tuple(sorted(set(slower["experiment"].to_pylist())))
    again = sweep(
        asked.model_copy(
            update={
                "experiments": letters,
                "build": measured.build,
                "seed": 0,
                "resume": None,
                "command": f"confirms {measured.run_id}",
            }
        )
    )
    return compare(request.model_copy(update={"second_lease": again.run_id}))
