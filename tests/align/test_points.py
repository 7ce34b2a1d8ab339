"""Planned points against what the processes observed."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tests.align.left import Left
from tilewatch.data_contracts import schema
from tilewatch.flows.steps.prepare import _selection
from tilewatch.flows.steps.requests import SweepRequest
from tilewatch.tasks.align.points import points_table
from tilewatch.tasks.align.runs import ControlCount, runs_row
from tilewatch.tasks.measure.environment import parse_environment
from tilewatch.tasks.plan.run_document import RunDocument
from tilewatch.tasks.read.captures.operator_capture import OBSERVED

NO_CONTROL = ControlCount(0, 0, "insufficient")


def points(document: RunDocument, left: Left, experiment: str = "B") -> pa.Table:
    tables = left.tables()
    return points_table(document, experiment, tables["captures"], tables["observed"])


def test_every_planned_point_is_there_with_its_proof_and_its_command(document: RunDocument) -> None:
    table = points(document, Left(document, "B"))
    assert table.num_rows == 9 and set(table["status"].to_pylist()) == {"present"}
    assert set(table["weight_format"].to_pylist()) == {"FRACTAL_NZ"}
    assert set(table["present_processes"].to_pylist()) == {2}
    row = table.to_pylist()[0]
    assert row["command"] == (
        "tilewatch run B --preset smoke --agent cpu --build base --seed 3 --processes 2 "
        f"--point {row['point_id']} --arm {row['arm']}"
    )


def test_an_environment_stands_for_the_build_in_the_command_and_is_quoted(document: RunDocument) -> None:
    side = parse_environment("new=/opt/my cann/set_env.sh")
    asked = SweepRequest(axis="7,14", environments=(side,))
    named = replace(document, environment=side.facts(), selection=_selection(asked, side))
    words = shlex.split(named.point_command("B", "bf16", "0" * 16))
    assert "--build" not in words
    assert words[words.index("--environment") + 1] == "new=/opt/my cann/set_env.sh"
    assert words[words.index("--axis") + 1] == "7,14" and words[-4:] == ["--point", "0" * 16, "--arm", "bf16"]


def test_without_any_process_every_point_is_missing_and_says_so(document: RunDocument) -> None:
    table = points_table(document, "B", schema("captures").empty_table(), OBSERVED.empty_table())
    assert Counter(table["status"].to_pylist()) == {"missing": 9}
    assert set(table["status_reason"].to_pylist()) == {"no process measured it"}


def test_a_process_that_failed_leaves_its_points_partial_with_its_reason(document: RunDocument) -> None:
    left = Left(document, "B")
    victim = next(c["capture_id"] for c in left.captures if c["arm"] == "bf16")
    for row in left.observed:
        if row["capture_id"] == victim:
            row.update(status="failed", reason="operator failed: out of memory", profiled_calls=0)
    table = points(document, left).filter(pc.field("arm") == "bf16")
    assert set(table["status"].to_pylist()) == {"partial"}
    assert set(table["status_reason"].to_pylist()) == {"operator failed: out of memory"}


def test_a_format_on_which_processes_disagree_is_not_proved(document: RunDocument) -> None:
    left = Left(document, "B")
    left.observed[0]["weight_format"] = "ND"
    arm = next(c["arm"] for c in left.captures if c["capture_id"] == left.observed[0]["capture_id"])
    table = points(document, left)
    row = table.filter(
        (pc.field("point_id") == left.observed[0]["point_id"]) & (pc.field("arm") == arm)
    ).to_pylist()[0]
    assert row["weight_format"] is None
    assert row["status_reason"] == "processes loaded different weight formats"


def test_control_processes_do_not_count_as_processes_of_the_arm(document: RunDocument) -> None:
    left = Left(document, "B")
    assert any(c["role"] == "control" for c in left.captures)
    assert set(points(document, left)["present_processes"].to_pylist()) == {2}


def test_the_group_list_and_what_follows_from_it_is_recorded(document: RunDocument) -> None:
    table = points(document, Left(document, "D"), "D").filter(pc.field("m_e") == 129)
    row = table.to_pylist()[0]
    assert row["group_list"] == [129, 129] and row["group_list_sum"] == row["allocated_rows"] == 258
    assert (row["empty_experts"], row["max_m_e"], row["local_experts"]) == (0, 129, 2)


def test_a_run_accounts_for_every_planned_process_and_point(document: RunDocument) -> None:
    left = Left(document, "B")
    gone = left.captures.pop()
    left.observed = [o for o in left.observed if o["capture_id"] != gone["capture_id"]]
    tables = left.tables() | {"samples": schema("samples").empty_table()}
    tables["points"] = points(document, left)
    row = runs_row(document, "B", tables, tables["observed"], quarantined_rows=0, control=NO_CONTROL)
    (run,) = row.to_pylist()
    assert run["planned_processes"] == run["accounted_processes"] == 8
    assert run["planned_points"] == run["accounted_points"] == 9
    assert run["status"] == "incomplete"
    assert run["status_reason"] == "1 of 8 processes and 0 points are missing"


def test_a_capture_that_was_not_planned_shows_in_the_account(document: RunDocument) -> None:
    left = Left(document, "B")
    left.captures.append({**left.captures[0], "capture_id": "f" * 32, "process_index": 99})
    tables = left.tables() | {"samples": schema("samples").empty_table()}
    tables["points"] = points(document, left)
    (run,) = runs_row(
        document, "B", tables, tables["observed"], quarantined_rows=0, control=NO_CONTROL
    ).to_pylist()
    assert run["accounted_processes"] == run["planned_processes"] + 1


def test_a_failed_control_voids_the_run(document: RunDocument) -> None:
    left = Left(document, "B")
    tables = left.tables() | {"samples": schema("samples").empty_table()}
    tables["points"] = points(document, left)
    (run,) = runs_row(
        document, "B", tables, tables["observed"], quarantined_rows=0, control=ControlCount(40, 20, "void")
    ).to_pylist()
    assert run["status"] == "void"
    assert run["status_reason"] == "20 of 40 A/A control pairs were called different"
