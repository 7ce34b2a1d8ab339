"""What a validation found, as plain data for its page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tilewatch.tasks.validate.exchange import Outcome
from tilewatch.tasks.validate.refuse import Refused
from tilewatch.tasks.validate.wording import Rule, fields_of, requirement

EXAMPLES = 5
PLACE = ("capture_id", "source_file", "source_line")


def table_result(
    name: str, table: pa.Table, rules: Sequence[Rule], outcomes: Sequence[Outcome], refused: Refused
) -> dict[str, Any]:
    """``{name, rows, kept, refused, rules: [{rule, requirement, fields, severity, success, …, examples}]}``.

    Each broken rule carries its first rows as examples: row number from 1, place and the values it judges.
    """
    return {
        "name": name,
        "rows": table.num_rows,
        "kept": refused.kept.num_rows,
        "refused": refused.row_count,
        "rules": [_rule_result(table, rules[outcome.rule_index], outcome) for outcome in outcomes],
    }


def _rule_result(table: pa.Table, rule: Rule, outcome: Outcome) -> dict[str, Any]:
    return {
        "rule": rule["description"],
        "requirement": requirement(rule),
        "fields": fields_of(rule),
        "severity": rule["severity"],
        "success": outcome.success,
        "row_count": outcome.row_count,
        "failed_count": len(outcome.failed_rows),
        "detail": outcome.detail,
        "examples": _examples(table, fields_of(rule), outcome.failed_rows[:EXAMPLES]),
    }


def _examples(table: pa.Table, fields: Sequence[str], rows: Sequence[int]) -> list[dict[str, Any]]:
    place = [column for column in PLACE if column in table.column_names]
    found = table.select(list(dict.fromkeys([*place, *fields]))).take(pa.array(rows, type=pa.int64()))
    return [
        {
            "row": number + 1,
            "place": " ".join(str(row[column]) for column in place if row[column] is not None),
            "values": {field: None if row[field] is None else str(row[field]) for field in fields},
        }
        for number, row in zip(rows, found.to_pylist(), strict=True)
    ]
