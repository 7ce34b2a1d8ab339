"""SQL reads the tables, only reads, and only the tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tilewatch.data_contracts import table_names
from tilewatch.infra.errors import QueryError
from tilewatch.infra.tables import TableStore

Rows = Callable[..., pa.Table]


def test_a_query_joins_tables_and_sees_one_without_data_as_empty(tables: TableStore, rows: Rows) -> None:
    tables.write("runs", rows("runs", [{"run_id": "R1", "build": "cpu"}]))
    answer = tables.query(
        "SELECT r.build, count(s.sample) AS n FROM Runs r LEFT JOIN samples s USING (run_id) GROUP BY 1"
    )
    assert answer.to_pydict() == {"build": ["cpu"], "n": [0]}


def test_every_table_is_shown(local_tables: TableStore) -> None:
    assert local_tables.query("SHOW TABLES")["name"].to_pylist() == list(table_names())


def test_a_map_column_can_be_asked_by_its_keys(local_tables: TableStore, rows: Rows) -> None:
    local_tables.write("kernels", rows("kernels", [{"capture_id": "c", "metrics": [("mac_ratio", 0.5)]}]))
    answer = local_tables.query("SELECT metrics['mac_ratio'] AS ratio, metrics['none'] AS no FROM kernels")
    assert answer.to_pydict() == {"ratio": [0.5], "no": [None]}


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT nothing FROM runs", "nothing"),
        ("SELECT * FROM runz", "runz"),
        ("SELECT 1/'a'", "Could not convert"),
        ("", "one statement"),
        ("SELECT 1; SELECT 2", "one statement"),
    ],
)
def test_wrong_sql_is_answered_in_duckdbs_words(local_tables: TableStore, sql: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason):
        local_tables.query(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO '{out}'",
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM glob('/*')",
        "ATTACH '{out}' AS other",
        "EXPORT DATABASE '{out}'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{out}'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "CREATE TABLE runs AS SELECT 1",
        "SELECT * FROM tables",
    ],
)
def test_a_query_reaches_neither_disk_nor_network_nor_the_programs_variables(
    local_tables: TableStore, tmp_path: Path, sql: str
) -> None:
    tables = local_tables
    with pytest.raises(QueryError):
        tables.query(sql.format(out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()
