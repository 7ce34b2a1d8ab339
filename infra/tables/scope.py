"""Which rows a write replaces.

A write states everything there is to say about a *scope*: a capture, a run, a comparison. The rows that the
table holds of that scope and the new rows change places in one commit. So a retried write, a resumed run or a
second analysis leaves each row exactly once, and a row that is no longer true (a cliff that a new version no
longer sees) goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import contract
from tilewatch.infra.errors import TableError

# A comparison is written whole, whatever the keys of its rows.
_SCOPES = {
    "comparisons": ("comparison_id", "version"),
    "serving_comparisons": ("run_id", "compared_by", "baseline", "candidate", "version"),
}


def scope_of(table: str) -> tuple[str, ...]:
    """Columns whose values name a scope of ``table``: the capture, else the run, else the contract's key."""
    spec = contract(table)
    if table in _SCOPES:
        return _SCOPES[table]
    for column in ("capture_id", "run_id"):
        if any(c.name == column for c in spec.columns):
            return (column,)
    return spec.key


def predicate(table: str, data: pa.Table, scope: Sequence[str], emptied: Mapping[str, Iterable[str]]) -> str:
    """SQL condition for the rows that ``data`` replaces; empty where there are none to replace.

    A row whose scope is null (a check over no capture) is replaced by its key instead. ``emptied`` names
    scopes that are replaced even though ``data`` may have no row of them.
    """
    key = contract(table).key
    # Other columns may be gigabytes that a filter would copy.
    named = data.select([c for c in data.column_names if c in {*scope, *key, *emptied, "run_id"}])
    scoped = has_scope(named, scope)
    loose = named.filter(pc.invert(scoped))
    terms = _terms(named.filter(scoped), scope) + _terms(loose, key)
    terms += [_among(column, values) for column, values in unmentioned(named, emptied).items()]
    return " OR ".join(f"({term})" for term in terms)


def has_scope(data: pa.Table, scope: Sequence[str]) -> pa.ChunkedArray:
    """Mask of the rows in which every column of ``scope`` has a value."""
    scoped = pc.is_valid(data[scope[0]])
    for column in scope[1:]:
        scoped = pc.and_(scoped, pc.is_valid(data[column]))
    return scoped


def unmentioned(data: pa.Table, emptied: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """The values of ``emptied`` that no row of ``data`` has, by column, sorted; no column without any."""
    silent = {
        column: sorted(set(values) - set(pc.unique(data[column]).to_pylist()))
        for column, values in emptied.items()
    }
    return {column: values for column, values in silent.items() if values}


def refuse_duplicates(table: str, data: pa.Table) -> None:
    """Raise TableError where ``data`` holds a contract key twice: one of the rows would be a lie."""
    key = list(contract(table).key)
    counted = data.group_by(key).aggregate([([], "count_all")])
    twice = counted.filter(pc.greater(counted["count_all"], 1))
    if twice.num_rows:
        row = twice.slice(0, 1).to_pylist()[0]
        count = row.pop("count_all")
        named = ", ".join(f"{name}={value}" for name, value in row.items())
        raise TableError(
            f"table {table}: {twice.num_rows} keys occur twice or more; {named} occurs {count} times"
        )


def equals(column: str, value: object) -> str:
    """SQL condition ``column = value``."""
    return f"{column} = {_literal(value)}"


def _terms(rows: pa.Table, columns: Sequence[str]) -> list[str]:
    """Conditions that match exactly the tuples of ``columns`` in ``rows``.

    The last column is folded into one list per tuple of the others; ``run_id``, which a capture determines,
    goes along, because files tell their range of runs and need not be opened then.
    """
    if not rows.num_rows:
        return []
    *leading, last = columns
    if last == "capture_id" and "run_id" in rows.column_names and rows["run_id"].null_count == 0:
        leading = ["run_id"]
    if not leading:
        return [_among(last, pc.unique(rows[last]).to_pylist())]
    groups = rows.group_by(leading).aggregate([(last, "distinct")])
    return [
        " AND ".join(
            [*(equals(column, group[column]) for column in leading), _among(last, group[f"{last}_distinct"])]
        )
        for group in groups.to_pylist()
    ]


def _among(column: str, values: Iterable[object]) -> str:
    return f"{column} IN ({', '.join(_literal(value) for value in values)})"


def _literal(value: object) -> str:
    if isinstance(value, bool | int):
        return str(value).lower()
    return "'" + str(value).replace("'", "''") + "'"
