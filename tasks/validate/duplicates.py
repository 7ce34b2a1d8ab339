"""Which rows of a broken uniqueness rule are refused.

Great Expectations names every row of a repeated key. Where these rows say the same in every column but the
place they were read from, the first is kept and the others are refused: one reading was stored twice. Where
they differ nobody can tell which one is right, and all are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

RULES = ("expect_column_values_to_be_unique", "expect_compound_columns_to_be_unique")
PROVENANCE = ("source_file", "source_line")

_REFUSED = """
WITH described AS (
    SELECT nth_row, CAST(to_json(key_row) AS VARCHAR) AS key, CAST(to_json(content_row) AS VARCHAR) AS content
    FROM keys AS key_row POSITIONAL JOIN contents AS content_row POSITIONAL JOIN numbers
), counted AS (
    SELECT nth_row, count(DISTINCT content) OVER (PARTITION BY key) AS variants,
           row_number() OVER (PARTITION BY key ORDER BY nth_row) AS place
    FROM described
)
SELECT nth_row FROM counted WHERE variants > 1 OR place > 1 ORDER BY nth_row
"""


def refused_duplicates(
    table: pa.Table, key: Sequence[str], repeated: Sequence[int], connection: duckdb.DuckDBPyConnection
) -> list[int]:
    """The row numbers of ``repeated`` (all rows whose ``key`` is not unique) that are refused, ascending."""
    rows = table.take(pa.array(repeated, type=pa.int64()))
    connection.register("keys", rows.select(list(key)))
    connection.register("contents", rows.drop_columns([c for c in PROVENANCE if c in rows.column_names]))
    connection.register("numbers", pa.table({"nth_row": pa.array(repeated, type=pa.int64())}))
    return [int(number) for (number,) in connection.sql(_REFUSED).fetchall()]
