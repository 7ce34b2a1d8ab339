"""Which outcomes take rows out of a table."""

from __future__ import annotations

import duckdb
import pytest

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.validate.checks import check_rows
from tilewatch.tasks.validate.context import Context
from tilewatch.tasks.validate.exchange import Outcome
from tilewatch.tasks.validate.refuse import refuse

TABLE = from_rows(
    "predictions", [{"platform": "x", "cann_version": "9", "call_id": str(i)} for i in range(4)]
)
CONTEXT = Context("01RUN", "unknown")


def rule(severity: str):
    kwargs = {"column": "call_id", "value_set": ["0"]}
    return {
        "type": "expect_column_values_to_be_in_set",
        "kwargs": kwargs,
        "severity": severity,
        "description": "d",
    }


@pytest.fixture
def connection():
    with duckdb.connect() as opened:
        yield opened


def test_a_warning_is_recorded_and_the_row_is_kept(connection):
    outcomes = [Outcome(0, False, True, 4, (1, 3), None)]
    found = refuse("predictions", TABLE, [rule("warning")], outcomes, CONTEXT, connection)
    assert found.kept.equals(TABLE) and found.quarantine.num_rows == 0
    (check,) = check_rows("predictions", TABLE, [rule("warning")], outcomes, CONTEXT, connection).to_pylist()
    assert (check["success"], check["severity"], check["failed_count"]) == (False, "warning", 2)


def test_a_rule_that_could_not_run_keeps_the_rows_and_fails_its_check(connection):
    outcomes = [Outcome(0, False, False, 4, (), "no such column")]
    found = refuse("predictions", TABLE, [rule("error")], outcomes, CONTEXT, connection)
    assert found.kept.equals(TABLE) and found.quarantine.num_rows == 0
    (check,) = check_rows("predictions", TABLE, [rule("error")], outcomes, CONTEXT, connection).to_pylist()
    assert (check["success"], check["failed_count"], check["detail"]) == (False, 0, "no such column")


def test_a_table_without_build_takes_run_and_build_of_the_validation(connection):
    outcomes = [Outcome(0, False, True, 4, (2,), None)]
    found = refuse("predictions", TABLE, [rule("error")], outcomes, CONTEXT, connection)
    assert found.kept["call_id"].to_pylist() == ["0", "1", "3"]
    (row,) = found.quarantine.to_pylist()
    assert (row["run_id"], row["build"], row["source_file"], row["value"]) == ("01RUN", "unknown", None, "2")


def test_equal_rows_refused_together_have_different_ids(connection):
    twice = from_rows("predictions", [{"platform": "x", "cann_version": "9", "call_id": "7"}] * 2)
    outcomes = [Outcome(0, False, True, 2, (0, 1), None)]
    ids = refuse("predictions", twice, [rule("error")], outcomes, CONTEXT, connection).quarantine[
        "quarantine_id"
    ]
    assert len(set(ids.to_pylist())) == 2


def test_a_long_row_is_cut_at_4000_characters_and_is_still_told_apart(connection):
    rows = [{"platform": "x" * 5000, "cann_version": "9", "call_id": "1", "rule": last} for last in "ab"]
    table = from_rows("predictions", rows)
    outcomes = [Outcome(0, False, True, 2, (0, 1), None)]
    refused = refuse("predictions", table, [rule("error")], outcomes, CONTEXT, connection).quarantine
    assert [len(text) for text in refused["raw_text"].to_pylist()] == [4000, 4000]
    assert len(set(refused["quarantine_id"].to_pylist())) == 2
