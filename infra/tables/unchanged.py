"""Which rows of a write a table holds already, exactly so: they need no commit.

A table keeps every version of itself, so writing the same rows again would store them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import contract
from tilewatch.infra.tables.scope import has_scope
from tilewatch.tasks.sql import sql

# Arrow's own settings hold two million rows in memory at a time.
_LITTLE_AHEAD = {"batch_size": 1 << 15, "batch_readahead": 4, "fragment_readahead": 1}

_FINGERPRINTS = """
SELECT {scope}, count(*) AS n, sum(h) AS total, bit_xor(h) AS mixed
FROM (SELECT {scope}, hash({columns}) AS h FROM {rows}) GROUP BY ALL
"""
_CHANGED = f"""
WITH changed AS (
    {_FINGERPRINTS.replace("{rows}", "given_rows")} EXCEPT {_FINGERPRINTS.replace("{rows}", "stored_rows")}
)
SELECT nth FROM scopes SEMI JOIN changed USING ({{scope}}) ORDER BY nth
"""


def without_unchanged(table: str, stored: Any, rows: pa.Table, scope: Sequence[str]) -> pa.Table:
    """``rows`` without those of every scope of which ``stored``, the table's dataset, holds just these rows.

    Rows whose scope is null are compared one by one under the contract's key. Rows are compared by a hash of
    64 bits over all columns, its sum and its exclusive or over the scope.
    """
    scoped = has_scope(rows, scope)
    if pc.all(scoped).as_py() is not False:
        return _changed(stored, rows, scope)
    loose = _changed(stored, rows.filter(pc.invert(scoped)), contract(table).key)
    return pa.concat_tables([_changed(stored, rows.filter(scoped), scope), loose])


def _changed(stored: Any, rows: pa.Table, scope: Sequence[str]) -> pa.Table:
    if not rows.num_rows:
        return rows
    mentioned = pc.field(scope[0]).isin(pc.unique(rows[scope[0]].combine_chunks()))
    query = _CHANGED.format(
        scope=", ".join(f'"{name}"' for name in scope),
        columns=", ".join(_hashable(field) for field in rows.schema),
    )
    scopes = rows.select(list(scope)).append_column("nth", pa.array(np.arange(rows.num_rows)))
    held = stored.scanner(columns=rows.column_names, filter=mentioned, **_LITTLE_AHEAD)
    found = sql(query, {"given_rows": rows, "scopes": scopes, "stored_rows": held})
    return rows.take(found["nth"]) if found.num_rows < rows.num_rows else rows


def _hashable(field: pa.Field) -> str:
    """A nested value as text: its own hash does not tell [[1], [2]] from [[1, 2]], nor empty from null."""
    name = f'"{field.name}"'
    return f"CAST(to_json({name}) AS VARCHAR)" if pa.types.is_nested(field.type) else name
