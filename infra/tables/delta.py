"""One Delta table: opened, created, evolved and committed to, with conflicts retried."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from tilewatch.data_contracts import contract
from tilewatch.infra.errors import TableError

# Compared tables are evidence: neither their history nor their files may expire.
RETENTION = {
    "delta.logRetentionDuration": "interval 3650 days",
    "delta.deletedFileRetentionDuration": "interval 3650 days",
    "delta.enableExpiredLogCleanup": "false",
}
# Without them an unreachable store is noticed after minutes.
LIMITS = {"connect_timeout": "3s", "timeout": "30s", "max_retries": "3", "retry_timeout": "20s"}
# A reader holds a row group at a time: a million kernels, as delta-rs would write them, take a gigabyte.
LAYOUT = WriterProperties(max_row_group_size=1 << 17)
COMMIT_ATTEMPTS = 40
LONGEST_PAUSE_S = 1.0

T = TypeVar("T")


def open_table(uri: str, options: dict[str, str]) -> DeltaTable | None:
    """The table as it is now, None where nothing was ever written."""
    try:
        return DeltaTable(uri, storage_options=options)
    except TableNotFoundError:
        return None


def replace(table: str, uri: str, options: dict[str, str], data: pa.Table, predicate: str) -> int:
    """Put ``data`` in the place of the rows that match ``predicate``, in one commit; returns its version.

    delta-rs refuses the commit where another one added rows that match meanwhile, so that two writers of
    the same scope cannot both add it; the loser opens the table anew and replaces what the winner wrote.
    """
    properties = CommitProperties(custom_metadata={"contract_version": contract(table).version})

    # A description that was reworded since is no other schema; delta-rs would refuse it.
    plain = data.cast(pa.schema([field.remove_metadata() for field in data.schema]))

    def attempt() -> int:
        target = _for_writing(table, uri, options)
        write_deltalake(
            target,
            plain,
            mode="overwrite" if predicate else "append",
            predicate=predicate or None,
            writer_properties=LAYOUT,
            commit_properties=properties,
        )
        return int(target.version())

    return retried(table, attempt)


def retried(table: str, attempt: Callable[[], T]) -> T:
    """Run ``attempt`` until no other writer is in its way. Raises TableError when that never ends."""
    for number in range(COMMIT_ATTEMPTS):
        try:
            return attempt()
        except CommitFailedError:
            time.sleep(random.uniform(0, min(LONGEST_PAUSE_S, 0.02 * 2**number)))
    raise TableError(
        f"table {table}: other writers kept committing first, {COMMIT_ATTEMPTS} times", "Run it again"
    )


def missing_fields(table: str, present: pa.Schema) -> list[pa.Field]:
    """Columns that the contract gained since the table was written; null in the rows that are there."""
    return [field.with_nullable(True) for field in contract(table).schema if field.name not in present.names]


def lacks_values_of_older_rows(table: str, found: DeltaTable) -> bool:
    """Whether the table was written before a column that, by its contract, has a value in older rows."""
    return not set(contract(table).older_rows) <= set(_arrow_schema(found).names)


def rewrite(table: str, found: DeltaTable, rows: pa.Table) -> None:
    """Put ``rows``, of the present contract, in the place of everything in ``found``, in one commit.

    Raises CommitFailedError where another writer was first.
    """
    spec = contract(table)
    write_deltalake(
        found,
        rows,
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=[spec.partition] if spec.partition else None,
        writer_properties=LAYOUT,
        commit_properties=CommitProperties(custom_metadata={"contract_version": spec.version}),
    )


def _for_writing(table: str, uri: str, options: dict[str, str]) -> DeltaTable:
    """The table, created or brought to the present contract. The one place where a schema evolves."""
    spec = contract(table)
    found = open_table(uri, options)
    if found is None:
        DeltaTable.create(
            uri,
            mode="ignore",  # another writer may have been first
            schema=spec.schema,
            partition_by=[spec.partition] if spec.partition else None,
            name=spec.name,
            description=spec.purpose,
            configuration=RETENTION,
            storage_options=options,
        )
        return DeltaTable(uri, storage_options=options)
    if gained := missing_fields(table, _arrow_schema(found)):
        needed = {column.name for column in spec.columns if column.required}
        if required := [field.name for field in gained if field.name in needed]:
            raise TableError(
                f"table {table} was written before the required column {required[0]} existed",
                "Delete the table's rows and rebuild them from raw",
            )
        found.alter.add_columns(list(Schema.from_arrow(pa.schema(gained)).fields))
        return DeltaTable(uri, storage_options=options)
    return found


def _arrow_schema(table: DeltaTable) -> Any:
    return pa.schema(table.schema().to_arrow())
