"""Every rule that ran, passed or not, as rows of contract ``checks``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import contract, from_rows
from tilewatch.tasks.validate.context import Context
from tilewatch.tasks.validate.exchange import Outcome
from tilewatch.tasks.validate.refuse import rule_identity
from tilewatch.tasks.validate.wording import Rule

_SORTED_KEYS = "SELECT CAST(to_json(key_row) AS VARCHAR) AS key FROM key_row ORDER BY key"
_BATCH_ROWS = 100_000


@dataclass(frozen=True)
class _Groups:
    """Rows by (run, build): ``names`` per group, ``codes`` per row."""

    names: list[tuple[str | None, str]]
    codes: npt.NDArray[np.int64]


def check_rows(
    name: str,
    table: pa.Table,
    rules: Sequence[Rule],
    outcomes: Sequence[Outcome],
    context: Context,
    connection: duckdb.DuckDBPyConnection,
) -> pa.Table:
    """Contract ``checks``: one row per rule and (run, build) of ``table``.

    ``check_id`` hashes the keys of the rows checked, run, build and rule. A table without rows, or without
    the column, belongs to the run and build of ``context``.
    """
    groups, digest = _groups(table, context), _key_digest(name, table, connection)
    sizes = np.bincount(groups.codes, minlength=len(groups.names))
    rows = []
    for outcome in outcomes:
        rule = rules[outcome.rule_index]
        failed = np.bincount(groups.codes[list(outcome.failed_rows)], minlength=len(groups.names))
        for (run_id, build), size, broken in zip(groups.names, sizes, failed, strict=True):
            identity = "\x1f".join((digest, run_id or "", build, name, rule_identity(rule)))
            rows.append(
                {
                    "check_id": hashlib.sha256(identity.encode()).hexdigest()[:32],
                    "run_id": run_id,
                    "build": build,
                    "table": name,
                    "rule": rule["description"],
                    "expectation": rule["type"],
                    "severity": rule["severity"],
                    "success": not broken if outcome.row_level else outcome.success,
                    "row_count": int(size),
                    "failed_count": int(broken),
                    "detail": outcome.detail,
                }
            )
    return from_rows("checks", rows)


def _groups(table: pa.Table, context: Context) -> _Groups:
    if not table.num_rows:
        return _Groups([(context.run_id, context.build)], np.zeros(0, dtype=np.int64))
    runs, run_codes = _coded(table, "run_id", context.run_id)
    builds, build_codes = _coded(table, "build", context.build)
    present, codes = np.unique(run_codes * len(builds) + build_codes, return_inverse=True)
    names = [(runs[code // len(builds)], builds[code % len(builds)] or context.build) for code in present]
    return _Groups(names, codes.astype(np.int64))


def _coded(
    table: pa.Table, column: str, otherwise: str | None
) -> tuple[list[str | None], npt.NDArray[np.int64]]:
    """Distinct values of a column and the code of each row; ``otherwise`` stands in for null."""
    if column not in table.column_names:
        return [otherwise], np.zeros(table.num_rows, dtype=np.int64)
    encoded = table[column].combine_chunks().dictionary_encode()
    values = [*encoded.dictionary.to_pylist(), otherwise]
    return values, encoded.indices.fill_null(len(values) - 1).to_numpy().astype(np.int64)


def _key_digest(name: str, table: pa.Table, connection: duckdb.DuckDBPyConnection) -> str:
    """SHA-256 of all keys as JSON, sorted and joined by commas; as one string they would take gigabytes."""
    connection.register("key_row", table.select(list(contract(name).key)))
    digest, comma = hashlib.sha256(), b""
    for batch in connection.sql(_SORTED_KEYS).to_arrow_reader(_BATCH_ROWS):
        keys = pa.ListArray.from_arrays([0, batch.num_rows], batch["key"])
        digest.update(comma + pc.binary_join(keys, ",")[0].as_buffer())
        comma = b","
    return digest.hexdigest()
