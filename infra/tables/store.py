"""All tables of one store: written by scope, read as Arrow, pandas or SQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import fs
from pyarrow.parquet import filters_to_expression

from tilewatch.data_contracts import conform, contract, schema, table_names
from tilewatch.infra.errors import NoSpaceError, TableError
from tilewatch.infra.objects import Endpoint, ObjectStore
from tilewatch.infra.objects.failures import check_space
from tilewatch.infra.tables import delta, query, scope, unchanged

PREFIX = "tables"
Filters = Sequence[tuple[str, str, Any]]


class TableStore:
    """The tables under ``tables/`` of a store, or in a local folder."""

    def __init__(self, where: Endpoint | Path) -> None:
        self._where = where
        self._options = where.delta_options() | delta.LIMITS if isinstance(where, Endpoint) else {}

    def write(
        self,
        table: str,
        data: pa.Table,
        replace_keys: Sequence[str] | None = None,
        emptied: Mapping[str, Iterable[str]] | None = None,
        *,
        unless_same: bool = False,
    ) -> int | None:
        """Replace, in one commit, the rows of every scope that ``data`` speaks of; returns the new version.

        ``replace_keys`` overrides the table's scope columns (see ``infra.tables.scope``); ``emptied`` names
        further scopes, for example ``{"run_id": [run]}``, whose old rows go even where ``data`` has no new
        ones. With ``unless_same`` scopes whose rows are there already, all of them and no others, are left
        alone. None where there was nothing to write. Raises ContractError, TableError or StoreError.
        """
        rows, columns, emptied = conform(table, data), replace_keys or scope.scope_of(table), emptied or {}
        scope.refuse_duplicates(table, rows)
        if unless_same:
            rows, emptied = self._news(table, rows, columns, emptied)
        condition = scope.predicate(table, rows, columns, emptied)
        if not rows.num_rows and (not condition or self._open(table) is None):
            return None
        with self._explained(f"write table {table}"):
            return self._replace(table, rows, condition)

    def write_run(self, tables: Mapping[str, pa.Table], *, unless_same: bool = False) -> dict[str, int]:
        """One commit per table, ``runs`` last: who sees a run there sees all of it. Versions by table.

        The captures in ``captures`` and the runs in ``runs`` are complete in what is given: where another
        given table has no rows of one of them, the rows it had before go. ``unless_same`` is that of
        ``write``.
        """
        rows = {table: conform(table, data) for table, data in tables.items()}
        known = {
            column: rows[table][column].to_pylist()
            for table, column in (("captures", "capture_id"), ("runs", "run_id"))
            if table in rows
        }
        versions = {}
        for table in sorted(rows, key=lambda name: (name == "runs", name)):
            columns = scope.scope_of(table)
            gone = {column: values for column, values in known.items() if columns == (column,)}
            version = self.write(table, rows[table], emptied=gone, unless_same=unless_same)
            if version is not None:
                versions[table] = version
        return versions

    def scan(
        self, table: str, filters: Filters | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Rows of ``table`` in the present contract's shape; ``filters`` are ``(column, operator, value)``.

        Columns that older rows did not have are null. An empty table where nothing was written yet.
        """
        schema(table)
        with self._explained(f"read table {table}"):
            condition = filters_to_expression(list(filters)) if filters else None
            rows = conform(table, self._dataset(table).to_table(filter=condition))
        return rows.select(list(columns)) if columns else rows

    def load(self, table: str, build: str | None = None, run_id: str | None = None) -> pd.DataFrame:
        """Rows of ``table`` as pandas; integers that may be missing stay integers (``Int64``)."""
        return _to_pandas(self.scan(table, _equal(build=build, run_id=run_id)))

    def query(self, sql: str) -> pa.Table:
        """Answer of one SQL statement over all tables; a table without data is there and empty.

        Raises QueryError with DuckDB's message.
        """
        with self._explained("run the query"):
            names = query.named_tables(sql, table_names())
            return query.run(sql, {name: self._dataset(name) for name in names})

    def version(self, table: str) -> int | None:
        """Number of the newest commit of ``table``; None where nothing was ever written."""
        found = self._open(table)
        return None if found is None else int(found.version())

    def dataset(self, table: str) -> Any:
        """The rows of ``table`` as an Arrow dataset of the newest commit, in the present contract's shape."""
        with self._explained(f"open table {table}"):
            return self._dataset(table)

    def delete(self, table: str, run_id: str | None = None, capture_id: str | None = None) -> int:
        """Delete the rows of a run or a capture, to rebuild them from raw; returns how many."""
        wanted = _equal(run_id=run_id, capture_id=capture_id)
        if not wanted:
            raise TableError(f"table {table}: say which run or capture to delete")
        condition = " AND ".join(scope.equals(name, value) for name, _, value in wanted)
        with self._explained(f"delete from table {table}"):
            count = int(self._dataset(table).count_rows(filter=filters_to_expression(wanted)))
            if count:
                # Files that delta-rs rewrites to delete from them hold string views, which Arrow reads but
                # cannot filter; those that it rewrites to replace rows do not.
                self._replace(table, schema(table).empty_table(), condition)
            return count

    def compact(self, tables: Iterable[str] | None = None) -> None:
        """Merge the small files of each table: readers get ten times faster. No version is lost."""
        for table in tables if tables is not None else table_names():
            if self._open(table) is not None:
                with self._explained(f"compact table {table}"):
                    delta.retried(table, partial(self._compact, table))

    def history(self, table: str) -> list[dict[str, Any]]:
        """Commits of ``table``, newest first: version, timestamp, operation, contract version."""
        found = self._open(table)
        return [] if found is None else list(found.history())

    def uri(self, table: str) -> str:
        """Address of ``table`` for other Delta readers (Polars, Spark, Trino)."""
        contract(table)
        return self._uri(table)

    def _news(
        self, table: str, rows: pa.Table, columns: Sequence[str], emptied: Mapping[str, Iterable[str]]
    ) -> tuple[pa.Table, dict[str, list[str]]]:
        """What of ``rows`` is not in the table as it is, and which ``emptied`` scopes have rows to lose."""
        with self._explained(f"read table {table}"):
            stored = self._dataset(table)
            news = unchanged.without_unchanged(table, stored, rows, columns)
            lost = {}
            for column, values in scope.unmentioned(rows, emptied).items():
                found = stored.to_table(columns=[column], filter=pc.field(column).isin(values))
                lost[column] = sorted(set(found[column].to_pylist()))
        return news, lost

    def _replace(self, table: str, rows: pa.Table, condition: str) -> int:
        """One commit; before it, once, older rows get the values that a column they lack has for them.

        Null would not do: delta-rs skips files without statistics of a column, whatever a condition says.
        """

        def grow() -> None:
            found = self._open(table)
            if found is not None and delta.lacks_values_of_older_rows(table, found):
                delta.rewrite(table, found, self._in(found, table).to_table())

        delta.retried(table, grow)
        return delta.replace(table, self._uri(table), self._options, rows, condition)

    def _uri(self, table: str) -> str:
        if isinstance(self._where, Endpoint):
            return f"s3://{self._where.bucket}/{PREFIX}/{table}"
        return str(self._where / table)

    def _open(self, table: str) -> DeltaTable | None:
        with self._explained(f"open table {table}"):
            return delta.open_table(self._uri(table), self._options)

    def _require(self, table: str) -> DeltaTable:
        return DeltaTable(self._uri(table), storage_options=self._options)

    def _compact(self, table: str) -> None:
        self._require(table).optimize.compact(writer_properties=delta.LAYOUT)

    def _dataset(self, table: str) -> Any:
        """Dataset over the table's rows; an empty one where nothing was written yet."""
        found = self._open(table)
        return ds.dataset(schema(table).empty_table()) if found is None else self._in(found, table)

    def _in(self, found: DeltaTable, table: str) -> Any:
        """Dataset over the files of ``found`` through Arrow's own filesystem.

        delta-rs would offer a filesystem written in Python; Arrow's threads still hold it when the
        interpreter ends, and the process aborts ("terminate called without an active exception"). Where
        older rows lack a column that has a value for them, the table is read whole: filters and SQL see it.
        """
        if isinstance(self._where, Endpoint):
            files = self._where.arrow_filesystem(f"{PREFIX}/{table}")
        else:
            files = fs.SubTreeFileSystem(self._uri(table), fs.LocalFileSystem())
        dataset = found.to_pyarrow_dataset(filesystem=files)
        if gained := delta.missing_fields(table, dataset.schema):
            dataset = dataset.replace_schema(pa.schema([*dataset.schema, *gained]))
        if delta.lacks_values_of_older_rows(table, found):
            return ds.dataset(conform(table, dataset.to_table()))
        return dataset

    @contextmanager
    def _explained(self, action: str) -> Iterator[None]:
        """Turn what delta-rs and Arrow raise into one sentence; the store is asked first what is wrong."""
        try:
            yield
        except (DeltaError, OSError, pa.ArrowException) as error:
            if isinstance(self._where, Endpoint):
                ObjectStore(self._where).check()
                check_space(self._where)
            reason = str(error).splitlines()[0][:300]
            if "No space left" in reason:
                raise NoSpaceError(f"cannot {action}: no space left under {self._where}") from None
            raise TableError(f"cannot {action}: {reason}") from None


def _equal(**wanted: str | None) -> list[tuple[str, str, str]]:
    """Filters for the columns that a value is given for."""
    return [(name, "==", value) for name, value in wanted.items() if value is not None]


def _to_pandas(rows: pa.Table) -> pd.DataFrame:
    """Column by column: what the contract allows to be null gets a dtype that can hold null exactly."""
    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    return pd.DataFrame(
        {
            field.name: rows[field.name].to_pandas(
                types_mapper=nullable.get if field.nullable else None, maps_as_pydicts="strict"
            )
            for field in rows.schema
        }
    )
