"""What became of the armed points: a comparison that compared nothing is no calm one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tilewatch.data_contracts import schema
from tilewatch.tasks.analyse.comparison.coverage import Coverage, coverage

FIELDS = ("verdict", "verdict_reason", "refused", "q_value", "control_status", "base_ns")
SAME: dict[str, Any] = {
    "verdict": "SAME", "verdict_reason": "within the floor", "refused": None, "q_value": 0.8,
    "control_status": "ok", "base_ns": 2850.0,
}  # fmt: skip
REFUSED = {**SAME, "verdict": "UNDECIDED", "refused": "device: a -> b", "q_value": None,
           "verdict_reason": "refused: device: a -> b"}  # fmt: skip
MISSING = {
    **SAME,
    "verdict": "MISSING",
    "verdict_reason": "no value in the candidate: it failed",
    "q_value": None,
}
NEW = {**MISSING, "verdict_reason": "no value in the baseline: not planned there", "base_ns": None}


def of(*rows: dict[str, Any]) -> Coverage:
    kept = schema("comparisons")
    return coverage(pa.Table.from_pylist(list(rows), pa.schema([kept.field(name) for name in FIELDS])))


def test_every_armed_point_that_got_a_verdict_is_compared_and_a_new_point_is_not_armed() -> None:
    found = of(SAME, SAME, {**SAME, "verdict": "UNDECIDED"}, NEW)
    assert (found.armed, found.compared, found.whole) == (3, 3, True)
    assert found.sentence == "3 points armed, 3 compared, 0 refused, 0 missing."


def test_a_refused_and_a_missing_point_make_it_not_comparable_with_the_commonest_reason_first() -> None:
    found = of(SAME, REFUSED, REFUSED, MISSING)
    assert (found.armed, found.compared, found.refused, found.missing) == (4, 1, 2, 1)
    assert not found.whole
    assert found.sentence == (
        "not comparable: 4 points armed, 1 compared, 2 refused, 1 missing "
        "(refused: device: a -> b; no value in the candidate: it failed)."
    )


def test_too_few_processes_and_a_void_sweep_judge_nothing() -> None:
    few = {**SAME, "verdict": "UNDECIDED", "q_value": None, "verdict_reason": "fewer than 5 processes a side"}
    assert of(SAME, few).sentence == (
        "not comparable: 2 points armed, 1 compared, 0 refused, 0 missing, 1 not judged "
        "(fewer than 5 processes a side)."
    )
    assert of({**SAME, "control_status": "void"}).compared == 0


def test_nothing_armed_is_not_whole() -> None:
    assert not of().whole and not of(NEW).whole
    assert "the baseline has no value" in of(NEW).sentence
