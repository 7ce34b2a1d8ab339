"""One good row for every contract, and one bad row for every rule of every contract."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from tilewatch.data_contracts import contract, expectations, from_rows, table_names
from tilewatch.tasks.validate.run import Validated, validate_tables

Row = dict[str, Any]

EXACT: dict[str, Row] = {
    "comparisons": {"ratio": 1.0},
    "samples": {"duration_ns": 5, "discard_reason": "x"},
    "ledger": {"t_other_ns": 1.0},
    "launches": {"arm_proved": True, "ready_after_ns": 1, "server_pid": 1},
    "requests": {"ok": True, "ttft_ns": 1, "tpot_ns": None, "e2e_ns": 2, "output_tokens": 1},
    "serving_metrics": {"metric": "ttft_ns", "statistic": "mean"},
    "gates": {"bar": 1.0},
}


def filler(kind: pa.DataType, number: int) -> Any:
    """A value of a type; ``number`` makes it differ from row to row."""
    if pa.types.is_string(kind):
        return f"{number:032x}"
    if pa.types.is_boolean(kind):
        return False
    return float(number) if pa.types.is_floating(kind) else number if pa.types.is_integer(kind) else []


def good_row(table: str, number: int) -> Row:
    """A row that keeps every rule; rows of different ``number`` have different keys."""
    spec = contract(table)
    row: Row = {
        c.name: filler(c.type, number if c.key else 1) if c.required or c.key else None for c in spec.columns
    }
    row.update(EXACT.get(table, {}))
    for rule in spec.rules:
        kwargs = rule["kwargs"]
        if "value_set" in kwargs and row[kwargs["column"]] is not None and "row_condition" not in kwargs:
            row[kwargs["column"]] = kwargs["value_set"][0]
        if kwargs.get("strict_min") and row[kwargs["column"]] is not None:
            row[kwargs["column"]] = kwargs["min_value"] + 1.0
        if rule["type"].endswith("a_to_be_greater_than_b") and not kwargs.get("or_equal"):
            row[kwargs["column_A"]] = row[kwargs["column_B"]] + 1
    return row


def broken_row(row: Row, rule: Mapping[str, Any]) -> Row:
    """``row`` changed so that it breaks ``rule``."""
    kwargs, column = rule["kwargs"], rule["kwargs"].get("column")
    row = {**row, **condition_values(kwargs.get("row_condition", ""))}
    match rule["type"].removeprefix("expect_"):
        case "column_values_to_not_be_null":
            return {**row, column: None}
        case "column_values_to_be_null":
            return {**row, column: 1 if column.endswith("_ns") else "1"}
        case "column_values_to_be_in_set" if kwargs["value_set"] == [True]:
            return {**row, column: False}
        case "column_values_to_be_in_set" | "column_values_to_match_regex":
            return {**row, column: "(never allowed)"}
        case "column_value_lengths_to_be_between":
            return {**row, column: "x" * (kwargs["min_value"] - 1)}
        case "column_values_to_be_between":
            low, step = kwargs.get("min_value"), 0 if kwargs.get("strict_min") else 1
            return {**row, column: low - step if low is not None else kwargs["max_value"] + 1}
        case "column_pair_values_a_to_be_greater_than_b":
            return {**row, kwargs["column_A"]: 1, kwargs["column_B"]: 7}
        case "column_pair_values_to_be_equal":
            return {**row, kwargs["column_A"]: 1, kwargs["column_B"]: 2}
        case "column_values_to_be_unique" | "compound_columns_to_be_unique":
            return row
    raise AssertionError(f"this test cannot yet break a rule of type {rule['type']}")


def condition_values(condition: str) -> Row:
    """Column values that fulfil a row condition made of ``and``."""
    values: Row = {}
    for part in condition.split(" and ") if condition else []:
        if found := re.fullmatch(r'(\w+) ?== ?"(.*)"', part) or re.fullmatch(
            r'(\w+) in \["([^"]+)".*\]', part
        ):
            values[found[1]] = found[2]
        elif found := re.fullmatch(r'(\w+) ?!= ?".*"', part):
            values[found[1]] = "missing" if part.endswith('"aligned"') else "aligned"
        elif found := re.fullmatch(r"(\w+) ?== ?(True|False)", part):
            values[found[1]] = found[2] == "True"
        elif found := re.fullmatch(r"(\w+) ?(>|<=) ?(\d+)", part):
            values[found[1]] = int(found[3]) + (found[2] == ">")
        elif found := re.fullmatch(r"(\w+)\.isnull\(\)", part):
            values[found[1]] = None
        elif found := re.fullmatch(r"(\w+)\.notnull\(\)", part):
            values[found[1]] = "0"
        else:
            raise AssertionError(f"this test cannot yet fulfil the condition {part!r}")
    return values


def breakable(table: str) -> list[int]:
    """Rules that a row can break: a column with ``older_rows`` reads null as that, so it is never missing."""
    filled = contract(table).older_rows
    rules = enumerate(expectations(table))
    return [n for n, r in rules if "not_be_null" not in r["type"] or r["kwargs"].get("column") not in filled]


@dataclass(frozen=True)
class EveryRuleBroken:
    """Every table with one good row (first), then one bad row for each rule, and its validation."""

    tables: dict[str, pa.Table]
    bad_rows: dict[tuple[str, int], Row]
    validated: Validated


@pytest.fixture(scope="session")
def every_rule_broken(tmp_path_factory: pytest.TempPathFactory) -> EveryRuleBroken:
    """One process validates everything: a start costs seconds."""
    tables, bad_rows = {}, {}
    for table in table_names():
        rows = [good_row(table, 1)]
        for index in breakable(table):
            rule = expectations(table)[index]
            bad = bad_rows[table, index] = broken_row(good_row(table, index + 2), rule)
            rows += [bad, bad] if "unique" in rule["type"] else [bad]
        tables[table] = from_rows(table, rows)
    return EveryRuleBroken(tables, bad_rows, validate_tables(tables, tmp_path_factory.mktemp("validate")))
