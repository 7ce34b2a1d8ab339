"""A build whose operator package is of another release than its CANN is predicted by the operator package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewatch.tasks.builds.packages import mixes
from tilewatch.tasks.plan.experiment import Experiment
from tilewatch.tasks.publish.run_report.agreement import agreement
from tilewatch.tasks.simulate.builds import simulated_build


def test_observed_tiling_of_a_mixed_build_agrees_with_the_operator_packages_release_and_not_with_canns(
    simulate: Callable[..., dict[str, Any]], experiments: dict[str, Experiment]
) -> None:
    build = simulated_build("sim-cann8.5.0-ops_nn9.0.0")
    tables = simulate(build, [experiments["A"]], preset="smoke")
    sides = tables["runs"], tables["points"], tables["alignments"]
    assert len(mixes(build.components)) == 1
    own, by_cann = agreement(*sides), agreement(*sides, asked="8.5.0")
    assert own is not None and by_cann is not None
    assert sum(own.by_field["compared"].to_pylist()) > 30
    assert sum(own.by_field["differ"].to_pylist()) == 0
    assert sum(by_cann.by_field["differ"].to_pylist()) > 0
