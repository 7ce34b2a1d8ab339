"""Tables hold each row once whatever is retried, and give back exactly what was written."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pydantic import SecretStr

import tilewatch
from tilewatch.data_contracts import ContractError, contract, schema
from tilewatch.infra.errors import BucketError, StoreUnreachableError, TableError
from tilewatch.infra.objects import Endpoint
from tilewatch.infra.services import store
from tilewatch.infra.settings import load_settings
from tilewatch.infra.tables import TableStore, delta

Rows = Callable[..., pa.Table]
ODD_LABEL = "8.2 RC1/β 'quoted' %2F"


def _kernels(rows: Rows, capture: str, count: int = 3, run: str = "R1", build: str = "cpu") -> pa.Table:
    return rows(
        "kernels",
        [
            {
                "capture_id": capture,
                "run_id": run,
                "build": build,
                "kernel_index": index,
                "duration_ns": 2**60 + index,
                "start_ns": None if index == 0 else 2**60 + 1,
                "input_shapes": [[8, 4096], [], [4096, 1024]],
                "metrics": [("mac_ratio", 0.5), ("", None)],
                "flags": ["odd"],
            }
            for index in range(count)
        ],
    )


def _keys(data: pa.Table) -> list[tuple[str, int]]:
    return sorted(zip(data["capture_id"].to_pylist(), data["kernel_index"].to_pylist(), strict=True))


def test_rows_come_back_exactly_with_maps_and_lists_of_lists(tables: TableStore, rows: Rows) -> None:
    written = _kernels(rows, "c1")
    tables.write("kernels", written)
    assert tables.scan("kernels").sort_by("kernel_index").equals(written)


def test_a_capture_written_twice_is_there_once(tables: TableStore, rows: Rows) -> None:
    tables.write("kernels", _kernels(rows, "c1"))
    tables.write("kernels", _kernels(rows, "c2"))
    tables.write("kernels", _kernels(rows, "c1"))
    assert _keys(tables.scan("kernels")) == [(c, i) for c in ("c1", "c2") for i in range(3)]


def test_rows_of_a_resumed_run_take_the_place_of_the_old_ones(tables: TableStore, rows: Rows) -> None:
    points = [{"run_id": "R1", "point_id": p, "status": "missing"} for p in "abc"]
    tables.write("points", rows("points", points))
    tables.write("points", rows("points", [{"run_id": "R2", "point_id": "a", "status": "present"}]))
    tables.write("points", rows("points", [{**point, "status": "present"} for point in points[:2]]))
    found = tables.load("points")
    assert sorted(zip(found["run_id"], found["point_id"], found["status"], strict=True)) == [
        ("R1", "a", "present"),
        ("R1", "b", "present"),
        ("R2", "a", "present"),
    ]


def test_each_write_is_one_commit(tables: TableStore, rows: Rows) -> None:
    versions = [tables.write("kernels", _kernels(rows, capture)) for capture in ("c1", "c2", "c1")]
    assert versions == [1, 2, 3]
    assert tables.history("kernels")[0]["contract_version"] == contract("kernels").version


def test_a_run_is_announced_after_everything_that_belongs_to_it(local_tables: TableStore, rows: Rows) -> None:
    run = {"runs": rows("runs", [{"run_id": "R1"}]), "samples": rows("samples", [{"capture_id": "c1"}])}
    assert list(local_tables.write_run(run)) == ["samples", "runs"]


def test_a_row_that_is_no_longer_true_goes_with_the_next_write_of_its_run(
    local_tables: TableStore, rows: Rows
) -> None:
    run = {
        "runs": rows("runs", [{"run_id": "R1"}]),
        "captures": rows("captures", [{"capture_id": "c1", "run_id": "R1"}]),
        "cliffs": rows("cliffs", [{"cliff_id": "k", "run_id": "R1"}]),
        "quarantine": rows("quarantine", [{"quarantine_id": "q", "capture_id": "c1"}]),
    }
    local_tables.write_run(run)
    empty = {name: schema(name).empty_table() for name in ("cliffs", "quarantine")}
    local_tables.write_run({**run, **empty})
    assert [local_tables.scan(name).num_rows for name in ("cliffs", "quarantine", "captures")] == [0, 0, 1]


def test_rows_without_a_capture_are_replaced_by_their_key(local_tables: TableStore, rows: Rows) -> None:
    checks = [{"check_id": "run", "capture_id": None}, {"check_id": "one", "capture_id": "c1"}]
    for _ in range(2):
        local_tables.write("checks", rows("checks", checks))
    assert sorted(local_tables.load("checks")["check_id"]) == ["one", "run"]


def test_a_comparison_is_written_whole_beside_its_older_versions(
    local_tables: TableStore, rows: Rows
) -> None:
    def comparison(version: int, points: str) -> pa.Table:
        return rows(
            "comparisons", [{"comparison_id": "c", "version": version, "point_id": point} for point in points]
        )

    for data in (comparison(1, "abc"), comparison(2, "abc"), comparison(2, "ab")):
        local_tables.write("comparisons", data)
    found = local_tables.load("comparisons")
    assert sorted(zip(found["version"], found["point_id"], strict=True)) == [
        *((1, point) for point in "abc"),
        *((2, point) for point in "ab"),
    ]


def test_rows_of_a_key_of_several_columns_replace_exactly_their_own(
    local_tables: TableStore, rows: Rows
) -> None:
    def prediction(version: str, call: str, block_dim: int) -> dict[str, Any]:
        return {"platform": "910C", "cann_version": version, "call_id": call, "block_dim": block_dim}

    local_tables.write(
        "predictions", rows("predictions", [prediction(v, c, 1) for v in ("8.2", "8.5") for c in "ab"])
    )
    local_tables.write(
        "predictions", rows("predictions", [prediction("8.2", "a", 2), prediction("8.5", "b", 2)])
    )
    found = local_tables.load("predictions")
    assert sorted(zip(found["cann_version"], found["call_id"], found["block_dim"], strict=True)) == [
        ("8.2", "a", 2),
        ("8.2", "b", 1),
        ("8.5", "a", 1),
        ("8.5", "b", 2),
    ]


def test_a_key_that_occurs_twice_is_refused_and_named(local_tables: TableStore, rows: Rows) -> None:
    twice = pa.concat_tables([_kernels(rows, "c1", 1), _kernels(rows, "c1", 1)])
    with pytest.raises(TableError, match="capture_id=c1"):
        local_tables.write("kernels", twice)
    assert local_tables.scan("kernels").num_rows == 0


def test_a_column_that_no_contract_names_is_refused(local_tables: TableStore, rows: Rows) -> None:
    data = _kernels(rows, "c1").append_column("surplus", pa.array(["x"] * 3))
    with pytest.raises(ContractError, match="surplus"):
        local_tables.write("kernels", data)


def test_a_table_without_data_is_empty_and_has_its_columns(tables: TableStore) -> None:
    assert tables.scan("cliffs").schema.equals(schema("cliffs"))
    assert list(tables.load("cliffs").columns) == schema("cliffs").names
    assert tables.history("cliffs") == []


def test_an_unknown_table_is_named(local_tables: TableStore) -> None:
    with pytest.raises(ContractError, match="kernles"):
        local_tables.load("kernles")


def test_builds_with_any_label_are_told_apart(tables: TableStore, rows: Rows) -> None:
    tables.write("kernels", _kernels(rows, "c1", build="cpu"))
    tables.write("kernels", _kernels(rows, "c2", count=2, build=ODD_LABEL))
    assert len(tables.load("kernels", build=ODD_LABEL)) == 2
    assert set(tables.load("kernels")["build"]) == {"cpu", ODD_LABEL}


def test_large_integers_survive_pandas_even_beside_nulls(local_tables: TableStore, rows: Rows) -> None:
    local_tables.write("kernels", _kernels(rows, "c1"))
    found = local_tables.load("kernels").sort_values("kernel_index")
    assert found["start_ns"].dtype == pd.Int64Dtype()
    assert found["start_ns"].tolist() == [pd.NA, 2**60 + 1, 2**60 + 1]
    assert found["metrics"].tolist()[0] == {"mac_ratio": 0.5, "": None}


def test_filters_and_columns_narrow_a_scan(local_tables: TableStore, rows: Rows) -> None:
    local_tables.write("kernels", _kernels(rows, "c1"))
    found = local_tables.scan("kernels", [("kernel_index", ">=", 1)], ["kernel_index", "flags"])
    assert found.to_pydict() == {"kernel_index": [1, 2], "flags": [["odd"], ["odd"]]}


def test_what_a_delete_leaves_of_a_file_can_still_be_filtered(tables: TableStore, rows: Rows) -> None:
    both = pa.concat_tables([_kernels(rows, "c1"), _kernels(rows, "c2"), _kernels(rows, "c3")])
    tables.write("kernels", both)
    assert tables.delete("kernels", capture_id="c1") == 3
    for filters in ([("capture_id", "==", "c2")], [("capture_id", "in", ["c2", "c9"])]):
        assert tables.scan("kernels", filters).num_rows == 3
    found = tables.query("SELECT count(*) AS n FROM kernels WHERE capture_id >= 'c2'")
    assert found["n"].to_pylist() == [6]


def test_a_deleted_capture_can_be_written_again_the_same(tables: TableStore, rows: Rows) -> None:
    for capture in ("c1", "c2"):
        tables.write("kernels", _kernels(rows, capture))
    before = tables.scan("kernels").sort_by([("capture_id", "ascending"), ("kernel_index", "ascending")])
    assert tables.delete("kernels", capture_id="c1") == 3
    assert _keys(tables.scan("kernels")) == [("c2", 0), ("c2", 1), ("c2", 2)]
    tables.write("kernels", _kernels(rows, "c1"))
    after = tables.scan("kernels").sort_by([("capture_id", "ascending"), ("kernel_index", "ascending")])
    assert after.equals(before)


def test_deleting_needs_a_run_or_a_capture(local_tables: TableStore) -> None:
    with pytest.raises(TableError, match="which run or capture"):
        local_tables.delete("kernels")
    assert local_tables.delete("kernels", run_id="R1") == 0


def test_compaction_merges_files_and_keeps_rows_and_versions(local_tables: TableStore, rows: Rows) -> None:
    for number in range(5):
        local_tables.write("kernels", _kernels(rows, f"c{number}"))
    before = _keys(local_tables.scan("kernels"))
    local_tables.compact()
    assert _keys(local_tables.scan("kernels")) == before
    assert len(DeltaTable(local_tables.uri("kernels")).file_uris()) == 1
    assert pl.read_delta(local_tables.uri("kernels"), version=2).height == 6


def test_nothing_of_a_table_ever_expires(local_tables: TableStore, rows: Rows) -> None:
    local_tables.write("kernels", _kernels(rows, "c1"))
    configuration = DeltaTable(local_tables.uri("kernels")).metadata().configuration
    assert configuration == delta.RETENTION


def test_polars_and_duckdb_read_the_tables_on_their_own(
    new_bucket: Callable[[], Endpoint], rows: Rows
) -> None:
    endpoint = new_bucket()
    tables = TableStore(endpoint)
    tables.write("kernels", _kernels(rows, "c1", build=ODD_LABEL))
    options = endpoint.delta_options()
    frame = pl.read_delta(tables.uri("kernels"), storage_options=options)
    assert sorted(frame["duration_ns"].to_list()) == [2**60, 2**60 + 1, 2**60 + 2]
    lazy = pl.scan_delta(tables.uri("kernels"), storage_options=options)
    assert lazy.filter(pl.col("build") == ODD_LABEL).collect().height == 3
    dataset = DeltaTable(tables.uri("kernels"), storage_options=options).to_pyarrow_dataset(
        filesystem=endpoint.arrow_filesystem("tables/kernels")
    )
    with duckdb.connect() as connection:
        connection.register("kernels", dataset)
        assert connection.execute("SELECT max(len(input_shapes)) FROM kernels").fetchall() == [(3,)]


def test_a_missing_bucket_is_said_to_be_missing(seaweed: Endpoint, rows: Rows) -> None:
    nowhere = TableStore(replace(seaweed, bucket="no-such-bucket"))
    with pytest.raises(BucketError, match="no-such-bucket"):
        nowhere.write("kernels", _kernels(rows, "c1"))


def test_a_store_that_is_gone_is_said_to_be_unreachable(rows: Rows) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    gone = TableStore(Endpoint(url, "bucket", SecretStr("key"), SecretStr("hush-hush")))
    for action in (lambda: gone.write("kernels", _kernels(rows, "c1")), lambda: gone.query("SHOW TABLES")):
        with pytest.raises(StoreUnreachableError, match=url) as caught:
            action()
        assert "hush" not in str(caught.value)


@contextmanager
def _contract_before(monkeypatch: pytest.MonkeyPatch, column: str, table: str = "kernels") -> Iterator[None]:
    """Inside the block, the contract of ``table`` is as it was before ``column`` was added."""
    present = contract(table)
    older = replace(present, columns=tuple(c for c in present.columns if c.name != column))
    with monkeypatch.context() as patch:
        for module in (
            "tilewatch.data_contracts.contract",
            "tilewatch.infra.tables.store",
            "tilewatch.infra.tables.delta",
            "tilewatch.infra.tables.scope",
        ):
            # The package's function of that name hides its module from an ordinary import.
            patch.setattr(import_module(module), "contract", lambda _: older)
        patch.setattr("tilewatch.infra.tables.store.schema", lambda _: older.schema)
        yield


def test_rows_from_before_a_column_existed_are_read_with_nulls_and_the_table_grows_when_written(
    local_tables: TableStore, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _kernels(rows, "c1").drop_columns(["flags"])
    with _contract_before(monkeypatch, "flags"):
        local_tables.write("kernels", old)
    assert "flags" not in DeltaTable(local_tables.uri("kernels")).schema().to_arrow().names
    assert local_tables.scan("kernels")["flags"].to_pylist() == [None] * 3
    assert local_tables.query("SELECT count(*) n FROM kernels WHERE flags IS NULL")["n"].to_pylist() == [3]

    local_tables.write("kernels", _kernels(rows, "c2"))
    found = local_tables.load("kernels").sort_values(["capture_id", "kernel_index"])
    assert [None if flags is None else list(flags) for flags in found["flags"]] == [None] * 3 + [["odd"]] * 3


def test_a_column_described_in_other_words_is_the_same_column(
    local_tables: TableStore, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = contract("kernels")
    with monkeypatch.context() as patch:
        reworded = tuple(replace(c, description=f"formerly: {c.description}") for c in present.columns)
        older = replace(present, columns=reworded)
        for module in ("data_contracts.contract", "infra.tables.store", "infra.tables.delta"):
            patch.setattr(import_module(f"tilewatch.{module}"), "contract", lambda _: older)
        local_tables.write("kernels", _kernels(rows, "c1"))
    local_tables.write("kernels", _kernels(rows, "c2"))
    local_tables.write("kernels", _kernels(rows, "c1"))
    assert sorted(local_tables.load("kernels")["capture_id"]) == ["c1"] * 3 + ["c2"] * 3


def test_rows_from_before_a_required_column_hold_what_its_contract_says_of_older_rows(
    local_tables: TableStore, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(run_id: str, version: int, verdict: str) -> pa.Table:
        own = {"comparison_id": run_id, "run_id": run_id, "compared_by": "arm", "version": version}
        return rows("serving_comparisons", [{**own, "verdict": verdict}])

    older = [judged(run_id, 0, "SLOWER").drop_columns(["version"]) for run_id in ("R1", "R2")]
    with _contract_before(monkeypatch, "version", "serving_comparisons"):
        for old in older:
            local_tables.write("serving_comparisons", old, ["run_id"])
    asked = "SELECT run_id, version, verdict FROM serving_comparisons ORDER BY ALL"
    both = [("R1", 1, "SLOWER"), ("R2", 1, "SLOWER")]

    def answers() -> list[tuple[Any, ...]]:
        found = local_tables.scan("serving_comparisons", [("version", "==", 1)])
        assert found.num_rows == sum(row["version"] == 1 for row in local_tables.query(asked).to_pylist())
        return [tuple(row.values()) for row in local_tables.query(asked).to_pylist()]

    assert answers() == both
    # The table grows: a second version stands beside the older rows, the first takes their place.
    local_tables.write("serving_comparisons", judged("R1", 2, "SAME"))
    assert answers() == [both[0], ("R1", 2, "SAME"), both[1]]
    local_tables.write("serving_comparisons", judged("R1", 1, "FASTER"))
    assert answers() == [("R1", 1, "FASTER"), ("R1", 2, "SAME"), both[1]]
    assert local_tables.write("serving_comparisons", judged("R2", 1, "SLOWER"), unless_same=True) is None
    assert local_tables.delete("serving_comparisons", run_id="R1") == 2 and answers() == [both[1]]


def test_load_reads_the_store_of_this_hosts_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: Rows
) -> None:
    monkeypatch.setenv("TILEWATCH_HOME", str(tmp_path))
    with store(load_settings()) as endpoint:
        TableStore(endpoint).write("kernels", _kernels(rows, "c1"))
        assert len(tilewatch.load("kernels", build="cpu", run_id="R1")) == 3
        assert len(tilewatch.load("kernels", build="other")) == 0
