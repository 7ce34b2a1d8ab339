"""A comparison as the files people download."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from tilewatch.tasks.plain_text import without_formulas


def comparison_parquet(comparison: pa.Table) -> bytes:
    """Parquet with the contract's types."""
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(comparison, sink)
    return bytes(sink.getvalue())


def read_parquet(content: bytes) -> pa.Table:
    """The table of ``comparison_parquet``."""
    return pa.parquet.read_table(pa.BufferReader(content))


def comparison_csv(comparison: pa.Table) -> bytes:
    """CSV with a header; null is empty, a list is joined by ``; ``, and no text is a formula."""
    for position, field in enumerate(comparison.schema):
        if pa.types.is_list(field.type):
            joined = pc.binary_join(comparison.column(position), "; ")
            comparison = comparison.set_column(position, field.name, joined)
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(without_formulas(comparison), sink)
    return bytes(sink.getvalue())


def table_csv(table: pa.Table) -> bytes:
    """All rows as CSV with a header; lists and maps become their JSON, and no text is a formula."""
    columns = [
        pa.array([None if v is None else orjson.dumps(v, default=str).decode() for v in column.to_pylist()])
        if pa.types.is_nested(column.type)
        else column
        for column in table.columns
    ]
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(without_formulas(pa.table(columns, names=table.column_names)), sink)
    return bytes(sink.getvalue())
