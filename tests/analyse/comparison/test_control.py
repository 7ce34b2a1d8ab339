"""The A/A control above every table: enough pairs, an error rate, and a void sweep."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewatch.tasks.analyse.comparison.compare import compare_builds
from tilewatch.tasks.analyse.comparison.control import control, control_table
from tilewatch.tasks.analyse.tables import RunTables, join


def with_control(make_run: Any, pairs: int, factor: float = 1.0, processes: int = 6, **run: Any) -> RunTables:
    """A run of 40 points whose first ``pairs`` also have control processes, slower by ``factor``."""
    draw = np.random.default_rng(pairs)
    main = make_run(20_000 * np.exp(0.003 * draw.normal(size=(40, processes))), **run)
    if not pairs:
        return main
    values = factor * 20_000 * np.exp(0.003 * draw.normal(size=(pairs, processes)))
    again = make_run(values, role="control", **run)
    both = join([main, again])
    return RunTables(main.runs, both.captures, main.points, both.samples, both.alignments)


def test_twenty_quiet_pairs_are_ok(make_run: Any) -> None:
    found = control(control_table(with_control(make_run, 20)))
    assert (found.pairs, found.false_pairs, found.status, found.false_rate) == (20, 0, "ok", 0.0)


def test_fewer_than_twenty_pairs_are_insufficient(make_run: Any) -> None:
    found = control(control_table(with_control(make_run, 19)))
    assert (found.pairs, found.status) == (19, "insufficient")
    nothing = control(control_table(with_control(make_run, 0)))
    assert (nothing.pairs, nothing.status, nothing.false_rate) == (0, "insufficient", None)


def test_pairs_of_two_processes_cannot_be_judged_and_do_not_count(make_run: Any) -> None:
    found = control(control_table(with_control(make_run, 25, processes=2)))
    assert (found.pairs, found.status) == (0, "insufficient")


def test_a_sweep_that_differs_from_itself_is_void_and_says_so_on_every_row(make_run: Any) -> None:
    base = with_control(make_run, 24, 1.1)
    assert control(control_table(base)).status == "void"
    draw = np.random.default_rng(9)
    other = make_run(30_000 * np.exp(0.003 * draw.normal(size=(40, 6))), run_id="run2", build="b2")
    table = compare_builds(base, other, baseline="a", candidate_name="b")
    assert set(table["control_status"].to_pylist()) == {"void"}
    assert set(table["verdict"].to_pylist()) == {"UNDECIDED"}
    assert table["control_false_rate"][0].as_py() == 1.0
    assert table["ratio"][0].as_py() > 1.4
    assert (
        table["verdict_reason"][0]
        .as_py()
        .startswith("the sweep is void: 24 of 24 A/A control pairs called different")
    )


def test_control_pairs_of_both_builds_stand_above_the_table(make_run: Any) -> None:
    base = with_control(make_run, 12)
    other = with_control(make_run, 13, run_id="run2", build="b2")
    table = compare_builds(base, other, baseline="a", candidate_name="b")
    assert set(table["control_pairs"].to_pylist()) == {25}
    assert set(table["control_status"].to_pylist()) == {"ok"}
    assert set(table["verdict"].to_pylist()) == {"SAME"}
