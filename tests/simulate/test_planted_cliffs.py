"""Cliffs planted in simulated builds, through captures and readers: found, classified, explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.simulate.conftest import Simulate, build_with, dense, planned
from tilewatch.tasks.derive.operators import derive
from tilewatch.tasks.simulate.sweep import simulate_run
from tilewatch.tasks.simulate.truth import Effect, Truth, Where

LINEARS = ("quiet", "stepped", "tiled", "silent", "comb", "spiked", "dropped")
EFFECTS = (
    Effect(Where(linear="stepped", first=10), ratio=1.10),
    Effect(Where(linear="tiled", first=24), ratio=1.20, tiling={"base_n": 128, "tiling_key": "25"}),
    Effect(Where(linear="silent", first=12), tiling={"tiling_key": "26"}),
    Effect(Where(linear="comb", first=9), ratio=1.30, period=16),
    Effect(Where(linear="spiked", first=20, last=20), ratio=1.30),
    Effect(Where(linear="dropped", first=20), ratio=0.85),
)
PLANTED = {
    "stepped": [(9, 10, "step", "unexplained")],
    "tiled": [(23, 24, "step", "explained")],
    "comb": [(8, 9, "comb", "unexplained"), (16, 17, "comb", "any"), (32, 33, "comb", "any")],
    "spiked": [(19, 20, "spike", "unexplained")],
    "dropped": [(19, 20, "drop", "unexplained")],
}
"""Boundaries of each planted cliff, its class, and whether a tiling change was planted with it.

The host tiling itself changes at M 17 and 33, so a cliff that happens to lie there may be explained by it.
"""


@pytest.fixture(scope="module")
def cliffs(simulate: Simulate) -> list[dict[str, Any]]:
    tables = simulate(build_with(Truth(EFFECTS)), [dense(LINEARS)])
    assert tables["quarantine"].num_rows == 0
    rows: list[dict[str, Any]] = tables["cliffs"].to_pylist()
    return rows


def on(cliffs: list[dict[str, Any]], linear: str, *, steps: bool = True) -> list[dict[str, Any]]:
    """Cliffs of one linear, or (``steps`` False) its tiling changes without a step."""
    return [c for c in cliffs if f" {linear} " in c["curve"] and (c["class"] != "none") == steps]


def test_every_planted_cliff_is_found_within_one_sampled_m_and_classified(
    cliffs: list[dict[str, Any]],
) -> None:
    for linear, planted in PLANTED.items():
        found = [(c["before"], c["after"], c["class"]) for c in on(cliffs, linear)]
        print(f"{linear:8s} planted {planted}, found {found}")
        assert [kind for *_, kind in found] == [kind for _, _, kind, _ in planted]
        for (before, _, _), (expected, *_) in zip(found, planted, strict=True):
            assert abs(before - expected) <= 1


def test_every_planted_cause_is_named_and_none_where_none_was_planted(cliffs: list[dict[str, Any]]) -> None:
    for linear, planted in PLANTED.items():
        for cliff, (*_, cause) in zip(on(cliffs, linear), planted, strict=True):
            assert cause in ("any", cliff["explanation"]), cliff["sentence"]
    (tiled,) = on(cliffs, "tiled")
    assert tiled["explanation_evidence"] == "observed"
    assert {"base_n: 64 -> 128", "tiling_key: 24 -> 25"} <= set(tiled["changed_fields"])
    (stepped,) = on(cliffs, "stepped")
    assert "the tiling record is the same on both sides" in stepped["sentence"]


def test_a_planted_tiling_change_without_effect_is_silent(cliffs: list[dict[str, Any]]) -> None:
    assert on(cliffs, "silent") == []
    silent = {(c["before"], c["after"]): c for c in on(cliffs, "silent", steps=False)}
    assert silent[11, 12]["explanation"] == "silent"
    assert silent[11, 12]["changed_fields"] == ["tiling_key: 24 -> 26"]


def test_a_curve_on_which_nothing_was_planted_has_no_cliff(cliffs: list[dict[str, Any]]) -> None:
    assert on(cliffs, "quiet") == []
    own = {(c["before"], c["after"]) for c in on(cliffs, "quiet", steps=False)}
    assert own == {(16, 17), (32, 33)}


def test_a_step_whose_tiling_was_not_observed_is_explained_from_prediction_and_says_so(
    tmp_path: Path,
) -> None:
    build = build_with(Truth((Effect(Where(linear="stepped", first=17), ratio=1.2),)))
    document = planned(build, [dense(("stepped",), processes=2)])
    captures = simulate_run(document, build, tmp_path)["B"]
    timing = [(folder, raw) for folder, raw in captures if "tiling" not in folder.name]
    assert len(timing) < len(captures)
    (cliff,) = [
        row for row in derive(document, {"B": timing})["cliffs"].to_pylist() if row["class"] != "none"
    ]
    assert (cliff["before"], cliff["explanation"], cliff["explanation_evidence"]) == (
        16,
        "explained",
        "predicted",
    )
    assert "(by prediction alone; no tiling record was observed)" in cliff["sentence"]
