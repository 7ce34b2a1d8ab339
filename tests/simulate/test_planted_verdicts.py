"""Regressions planted in simulated builds, and builds that differ in nothing, through the entire chain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.simulate.conftest import Simulate, build_with, dense, sides
from tilewatch.tasks.analyse.comparison.compare import compare_builds
from tilewatch.tasks.publish.comparison_report.tiling_changes import TilingChanges
from tilewatch.tasks.simulate.sweep import METHOD
from tilewatch.tasks.simulate.truth import Effect, Truth, Where

RATIOS = {"by1": 1.01, "by3": 1.03, "by5": 1.05, "by10": 1.10}
LINEARS = ("same", "tiled", *RATIOS)
PLANTED = (
    *(Effect(Where(linear=linear), ratio=ratio) for linear, ratio in RATIOS.items()),
    Effect(Where(linear="tiled"), ratio=1.2, tiling={"base_n": 128}),
)


def compared(simulate: Simulate, base: Truth, candidate: Truth, **options: Any) -> list[dict[str, Any]]:
    experiment = dense(LINEARS, last=16, processes=8)
    old = simulate(build_with(base), [experiment], run_id="01A")
    new = simulate(build_with(candidate, component="b"), [experiment], run_id="01B", **options)
    rows = compare_builds(sides(old), sides(new), baseline="a", candidate_name="b")
    both = {name: pa.concat_tables([old[name], new[name]]) for name in ("alignments", "tilings")}
    changes = TilingChanges(**both)
    return [row | {"cause": changes.of(row)} for row in rows.to_pylist()]


def test_planted_regressions_are_found_and_only_a_planted_tiling_is_their_cause(simulate: Simulate) -> None:
    rows = compared(simulate, Truth(), Truth(PLANTED))
    for linear in LINEARS:
        own = [row for row in rows if row["linear"] == linear]
        slower = np.mean([row["verdict"] == "SLOWER" for row in own])
        ratio = np.median([row["ratio"] for row in own])
        print(f"{linear:6s} SLOWER {slower:4.0%}, median ratio {ratio:.3f}")
        assert not any(row["verdict"] == "FASTER" for row in own)
        assert slower >= 0.95 if linear in ("by5", "by10", "tiled") else True
        assert slower == 0 if linear in ("same", "by1") else True
        cause = "base_n 64 → 128" if linear == "tiled" else ""
        assert {row["cause"] for row in own} == {cause}


@pytest.mark.parametrize("noise", ["two_mode", "heavy_tailed", "autoregressive"])
def test_builds_that_differ_in_nothing_are_called_different_nowhere(simulate: Simulate, noise: Any) -> None:
    truth = Truth(noise=noise, drift=0.0025)
    rows = compared(simulate, truth, truth)
    verdicts = [row["verdict"] for row in rows]
    print(f"{noise}: {', '.join(f'{verdicts.count(v)} {v}' for v in sorted(set(verdicts)))}")
    assert not {"SLOWER", "FASTER"} & set(verdicts)
    assert {row["cause"] for row in rows} == {""}


def test_a_changed_method_is_refused_by_name(simulate: Simulate) -> None:
    rows = compared(simulate, Truth(), Truth(), method={**METHOD, "warm_up": "none"})
    assert {row["verdict"] for row in rows} == {"UNDECIDED"}
    assert all("method_hash" in row["refused"] for row in rows)


def test_throttled_samples_are_flagged_and_discarded_within_the_budget(simulate: Simulate) -> None:
    experiment = dense(("same",), last=4)
    plain = simulate(build_with(Truth()), [experiment])
    throttled = simulate(build_with(Truth(throttled_share=0.3)), [experiment], run_id="01T")
    samples = throttled["samples"]
    assert pc.sum(samples["throttled"]).as_py() > 0
    assert pc.all(pc.equal(samples["discard_reason"].is_valid(), samples["throttled"])).as_py()
    base, other = sides(plain), sides(throttled)
    assert base.samples.num_rows < other.samples.num_rows
    kept = samples.filter(pc.and_(pc.invert(samples["discarded"]), pc.invert(samples["warm_up"])))
    assert (
        kept.num_rows
        == experiment.presets["quick"].samples
        * pc.count_distinct(pc.binary_join_element_wise(kept["capture_id"], kept["point_id"], "/")).as_py()
    )


def test_leases_differ_and_runs_of_one_seed_share_theirs(simulate: Simulate) -> None:
    experiment = dense(("same",), last=4)
    build = build_with(Truth())
    one, other = (simulate(build, [experiment], seed=seed, run_id=f"01{seed}") for seed in (5, 6))
    again = simulate(replace(build, label="other"), [experiment], run_id="01X")
    leases = [set(t["captures"]["lease_id"].to_pylist()) for t in (one, other, again)]
    assert leases == [{"simulated-5"}, {"simulated-6"}, {"simulated-5"}]
