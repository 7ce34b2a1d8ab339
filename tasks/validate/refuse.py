"""Rows that broke a rule: out of their table, into quarantine, with everything they said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import orjson
import pyarrow as pa

from tilewatch.data_contracts import conform, schema
from tilewatch.tasks.validate.context import Context
from tilewatch.tasks.validate.duplicates import RULES as UNIQUENESS
from tilewatch.tasks.validate.duplicates import refused_duplicates
from tilewatch.tasks.validate.exchange import Outcome
from tilewatch.tasks.validate.wording import Rule, fields_of, refuses, requirement

RAW_TEXT_LIMIT = 4000

_QUARANTINE = """
SELECT left(sha256(concat_ws(chr(31), $table, $rule_identity, raw, CAST(nth AS VARCHAR))), 32)
           AS quarantine_id,
       capture_id, run_id, build, 'validate' AS stage, $table AS "table", source_file, source_line,
       $field AS field, left(value, {limit}) AS value, $rule AS rule, $reason AS reason,
       left(raw, {limit}) AS raw_text
FROM (
    SELECT *, row_number() OVER (PARTITION BY raw) AS nth
    FROM (SELECT {columns}, {value} AS value, CAST(to_json(refused_row) AS VARCHAR) AS raw FROM refused_row)
)
ORDER BY source_file, source_line, raw, nth
"""


@dataclass(frozen=True)
class Refused:
    """A table without its refused rows, and these rows in the form of contract ``quarantine``."""

    kept: pa.Table
    quarantine: pa.Table
    row_count: int
    """Rows refused; a row that broke several rules counts once here and has several in ``quarantine``."""


def refuse(
    name: str,
    table: pa.Table,
    rules: Sequence[Rule],
    outcomes: Sequence[Outcome],
    context: Context,
    connection: duckdb.DuckDBPyConnection,
) -> Refused:
    """Split ``table`` by the outcomes of its rules; ``validate_tables`` says which of them refuse rows.

    ``connection`` is any in-memory DuckDB; a new one costs as much as a hundred refusals.
    """
    keep = np.ones(table.num_rows, dtype=bool)
    quarantines = [schema("quarantine").empty_table()]
    for outcome in outcomes:
        rule = rules[outcome.rule_index]
        rows = list(outcome.failed_rows) if refuses(rule) else []
        if rows and rule["type"] in UNIQUENESS:
            rows = refused_duplicates(table, fields_of(rule), rows, connection)
        if rows:
            keep[rows] = False
            quarantines.append(_quarantine(name, table.take(pa.array(rows)), rule, context, connection))
    # A table of millions of rows may be mapped from a file: what loses no row is not copied into memory.
    kept = table if keep.all() else table.filter(pa.array(keep))
    return Refused(kept, pa.concat_tables(quarantines), int((~keep).sum()))


def _quarantine(
    name: str, rows: pa.Table, rule: Rule, context: Context, connection: duckdb.DuckDBPyConnection
) -> pa.Table:
    fields = fields_of(rule)
    query = _QUARANTINE.format(limit=RAW_TEXT_LIMIT, columns=_place(rows), value=_value(fields))
    parameters = {
        "table": name,
        "rule_identity": rule_identity(rule),
        "field": ", ".join(fields) or None,
        "rule": rule["description"],
        "reason": requirement(rule),
        "run": context.run_id,
        "unknown_build": context.build,
    }
    connection.register("refused_row", rows)
    return conform("quarantine", connection.sql(query, params=parameters).to_arrow_table())


def rule_identity(rule: Rule) -> str:
    """The rule as text that stays the same while the rule asks for the same."""
    return f"{rule['type']} {orjson.dumps(rule['kwargs'], option=orjson.OPT_SORT_KEYS).decode()}"


def _place(rows: pa.Table) -> str:
    """SQL for the columns that say where a row came from; null where its table has no such column."""
    own = {name: name if name in rows.column_names else "NULL" for name in schema("quarantine").names}
    return (
        f"CAST({own['capture_id']} AS VARCHAR) AS capture_id, "
        f"coalesce(CAST({own['run_id']} AS VARCHAR), $run) AS run_id, "
        f"coalesce(CAST({own['build']} AS VARCHAR), $unknown_build) AS build, "
        f"CAST({own['source_file']} AS VARCHAR) AS source_file, "
        f"CAST({own['source_line']} AS BIGINT) AS source_line"
    )


def _value(fields: Sequence[str]) -> str:
    """SQL for the value as text: the plain value of one column, a JSON object of several."""
    quoted = [f'"{field}"' for field in fields]
    if len(quoted) == 1:
        return f"CAST({quoted[0]} AS VARCHAR)"
    return f"CAST(to_json({{{', '.join(f'{q}: {q}' for q in quoted)}}}) AS VARCHAR)"
