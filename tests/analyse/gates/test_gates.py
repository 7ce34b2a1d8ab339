"""Gates: armed or not, edges of their tolerance, launches that miss the bar or give no value."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyse import serving_case as case
from tilewatch.data_contracts import schema
from tilewatch.tasks.analyse.gates.gates import Gate, gate_table
from tilewatch.tasks.analyse.tables import AnalysisError

TPOT: dict[str, Any] = {"metric": "tpot_ns", "statistic": "mean", "direction": "at_most"}
OUTPUT: dict[str, Any] = {"metric": "output_token_per_s", "statistic": "total", "direction": "at_least"}
FAILS = None
"""A launch that gives no value."""


def held(gate: Gate, values: list[float | None]) -> dict[str, Any]:
    """The one row of ``gate`` against launches of these values, in the unit of its metric."""
    launches, metrics = [], []
    for index, value in enumerate(values):
        if value is None:
            launches.append(case.failed("nz", index, "ready", "not ready after 30 s"))
        else:
            launches.append(case.launch("nz", index))
            metrics += case.metrics_of(launches[-1], {gate.metric: value})
    table = gate_table(case.tables(launches, metrics=metrics), [gate])
    assert table.schema.equals(schema("gates"))
    return table.to_pylist()[0]


# what the gate states, launch values, status, words of the reason
CASES: list[tuple[str, dict[str, Any], list[float | None], str, str]] = [
    ("missing baseline", {**TPOT, "limit": None}, [1e6], "not armed", "no limit is stated"),
    ("zero baseline", {**TPOT, "limit": 0.0}, [1e6], "not armed", "a limit of 0 stands for nothing"),
    ("baseline of one", {**OUTPUT, "limit": 1.0}, [4000.0], "not armed", "a limit of 1 stands for nothing"),
    ("endless bar", {**TPOT, "limit": float("inf")}, [1e6], "not armed", "a limit of inf"),
    ("negative bar", {**OUTPUT, "limit": -5.0}, [4000.0], "not armed", "a limit of -5"),
    ("no number", {**TPOT, "limit": float("nan")}, [1e6], "not armed", "a limit of nan"),
    ("at the bar", {**TPOT, "limit": 50e6}, [50e6], "passed", "0 of 1 launches missed"),
    ("above the bar", {**TPOT, "limit": 50e6}, [50e6 + 1], "failed", "1 of 1 launches missed"),
    ("at the tolerance", {**TPOT, "limit": 50e6, "tolerance": 0.02}, [51e6], "passed", "0 of 1"),
    ("over the tolerance", {**TPOT, "limit": 50e6, "tolerance": 0.02}, [51e6 + 1], "failed", "1 of 1"),
    ("throughput at the bar", {**OUTPUT, "limit": 3100.0}, [3100.0], "passed", "0 of 1"),
    ("throughput under it", {**OUTPUT, "limit": 3100.0}, [3099.9], "failed", "1 of 1"),
    ("throughput, tolerance", {**OUTPUT, "limit": 3100.0, "tolerance": 0.02}, [3038.0], "passed", "0 of 1"),
    ("under its tolerance", {**OUTPUT, "limit": 3100.0, "tolerance": 0.02}, [3037.9], "failed", "1 of 1"),
    ("one failing of three", {**TPOT, "limit": 50e6, "needed_launches": 3}, [49e6, 52e6, 49e6], "failed",
     "1 of 3 launches missed the bar; 0 may"),
    ("one lost of three", {**TPOT, "limit": 50e6, "needed_launches": 3}, [49e6, FAILS, 49e6], "failed",
     "0 of 3 launches missed the bar, 1 gave no value; 0 may"),
    ("one failing, one may", {**TPOT, "limit": 50e6, "needed_launches": 3, "allowed_failures": 1},
     [49e6, 52e6, 49e6], "passed", "1 of 3 launches missed the bar"),
    ("one failing, one lost, one may", {**TPOT, "limit": 50e6, "needed_launches": 3, "allowed_failures": 1},
     [49e6, 52e6, FAILS], "failed", "1 of 3 launches missed the bar, 1 gave no value; 1 may"),
    ("best of three is no pass", {**TPOT, "limit": 50e6, "needed_launches": 3}, [52e6, 52e6, 49e6], "failed",
     "2 of 3 launches missed"),
    ("too few launches", {**TPOT, "limit": 50e6, "needed_launches": 3}, [49e6, 49e6], "failed",
     "2 launches, the gate needs 3"),
    ("every launch lost", {**TPOT, "limit": 50e6}, [FAILS], "failed", "1 gave no value"),
    ("nothing armed by a good value", {**TPOT, "limit": None}, [FAILS], "not armed", "no limit"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "stated", "values", "status", "reason"), CASES, ids=[c[0] for c in CASES])
def test_a_gate_holds_what_it_states(
    name: str, stated: dict[str, Any], values: list[float | None], status: str, reason: str
) -> None:
    gate = Gate("g", **{"tolerance": 0.0, "needed_launches": 1, **stated})
    row = held(gate, values)
    assert (row["status"], reason in row["status_reason"]) == (status, True), row["status_reason"]
    assert (row["bar"] is None) == (status == "not armed")


def test_the_margin_is_that_of_the_worst_launch() -> None:
    gate = Gate("tpot", **TPOT, limit=50e6, tolerance=0.0, needed_launches=2)
    assert held(gate, [40e6, 45e6])["worst_margin"] == pytest.approx(0.1)
    assert held(gate, [40e6, 55e6])["worst_margin"] == pytest.approx(-0.1)


def test_the_reference_gate_fails_only_below_its_tolerance() -> None:
    """3100 token/s with 2 % slack: a loss of 1 % passes, which is why it has no place for regressions."""
    gate = Gate("output", **OUTPUT, limit=3100.0, tolerance=0.02, needed_launches=1)
    assert gate.bar == pytest.approx(3038.0)
    assert held(gate, [3100.0 * 0.99])["status"] == "passed"


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({**TPOT, "needed_launches": 1, "allowed_failures": 1}, "would pass without a good launch"),
        ({**TPOT, "needed_launches": 1, "direction": "at_least"}, "at_least holds no tpot_ns"),
        ({**TPOT, "needed_launches": 1, "direction": "below"}, "'below' is not at_most or at_least"),
        ({**TPOT, "needed_launches": 1, "tolerance": 1.0}, "tolerance 1.0 is no share"),
    ],
)
def test_a_gate_that_could_not_fail_is_refused(stated: dict[str, Any], said: str) -> None:
    with pytest.raises(AnalysisError, match=said):
        Gate("g", **{"tolerance": 0.0, "limit": 50e6, **stated})


def test_an_unproved_arm_gives_no_value_to_a_gate() -> None:
    row = case.launch("nd", 0, arm_proved=False)
    gate = Gate("tpot", **TPOT, limit=50e6, tolerance=0.0, needed_launches=1)
    table = gate_table(case.tables([row], metrics=case.metrics_of(row, {"tpot_ns": 1e6})), [gate])
    assert table["status"].to_pylist() == ["failed"] and table["failed_launches"].to_pylist() == [1]
