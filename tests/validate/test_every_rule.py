"""Every rule of every contract really runs, finds its violation and moves the row to quarantine."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tests.validate.conftest import breakable
from tilewatch.data_contracts import expectations, from_rows, schema, table_names
from tilewatch.tasks.validate.wording import fields_of

RULES = [(table, index) for table in table_names() for index in breakable(table)]


def _name(table: str, index: int) -> str:
    return f"{table}-{index}-{expectations(table)[index]['description']}"


@pytest.mark.parametrize(("table", "index"), RULES, ids=[_name(*rule) for rule in RULES])
def test_a_violating_row_fails_its_rule_and_lands_in_quarantine(every_rule_broken, table, index):
    rule = expectations(table)[index]
    bad = from_rows(table, [every_rule_broken.bad_rows[table, index]])
    broken = [
        check
        for check in every_rule_broken.validated.checks.to_pylist()
        if (check["table"], check["rule"], check["expectation"]) == (table, rule["description"], rule["type"])
        and check["failed_count"]
    ]
    assert broken and all(check["success"] is False and check["detail"] is None for check in broken)
    refused = [
        row
        for row in every_rule_broken.validated.quarantine.to_pylist()
        if row["table"] == table
        and row["rule"] == rule["description"]
        and row["field"] == ", ".join(fields_of(rule))
        and _is(table, row["raw_text"], bad)
    ]
    assert len(refused) == 1
    if len(fields_of(rule)) == 1:
        value = bad[fields_of(rule)[0]][0].as_py()
        assert refused[0]["value"] == (None if value is None else str(value).lower())


def _is(table: str, raw_text: str, bad: pa.Table) -> bool:
    raw = json.loads(raw_text)
    flat = [f.name for f in schema(table) if not pa.types.is_nested(f.type)]
    return all(raw[name] == bad[name][0].as_py() for name in flat)


@pytest.mark.parametrize("table", table_names())
def test_the_good_row_is_the_one_that_stays(every_rule_broken, table):
    kept = every_rule_broken.validated.tables[table]
    uniqueness = sum("unique" in rule["type"] for rule in expectations(table))
    assert kept.num_rows == 1 + uniqueness  # of two equal rows the first is kept
    assert kept.slice(0, 1).equals(every_rule_broken.tables[table].slice(0, 1))
    assert kept.schema.equals(schema(table))
