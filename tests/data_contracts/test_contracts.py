"""One YAML a table is the only place that defines a column, and old data still loads."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from tilewatch import data_contracts
from tilewatch.data_contracts.contract import FOLDER, ContractError, load

VERSIONS = Path(__file__).parent / "versions.json"
TABLES = data_contracts.table_names()


def test_the_first_tables_of_the_design_have_contracts() -> None:
    assert set(TABLES) >= {
        "runs", "captures", "points", "samples", "kernels", "tilings", "alignments", "quarantine",
        "comparisons", "cliffs", "ledger", "predictions", "checks",
    }  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_a_contract_has_a_key_described_columns_and_real_rules(table: str) -> None:
    spec = data_contracts.contract(table)
    assert spec.key and spec.rules
    assert all(len(c.description) > 3 for c in spec.columns)
    assert all(re.fullmatch(r"[a-z0-9_]+", c.name) for c in spec.columns)
    assert all(c.required for c in spec.columns if c.key)


@pytest.mark.parametrize("table", TABLES)
def test_a_name_carries_its_unit(table: str) -> None:
    for c in data_contracts.contract(table).columns:
        if c.name.endswith("_ns"):
            assert c.unit == "ns" and c.type in (pa.int64(), pa.float64(), pa.list_(pa.int64()))
        if c.name.endswith("_bytes"):
            assert c.unit == "bytes" and c.type == pa.int64()


@pytest.mark.parametrize("table", TABLES)
def test_every_rule_names_columns_of_its_table(table: str) -> None:
    names = set(data_contracts.schema(table).names)
    for rule in data_contracts.expectations(table):
        kwargs = rule["kwargs"]
        used = {kwargs[k] for k in ("column", "column_A", "column_B") if k in kwargs}
        assert used | set(kwargs.get("column_list", ())) <= names, rule


@pytest.mark.parametrize("table", TABLES)
def test_the_documentation_page_explains_every_column(table: str) -> None:
    page = data_contracts.documentation(table)
    assert all(f"| `{name}` |" in page for name in data_contracts.schema(table).names)


def _columns(table: str) -> dict[str, dict[str, str | bool]]:
    columns = data_contracts.contract(table).columns
    return {c.name: {"type": c.physical_type, "required": c.required} for c in columns}


@pytest.mark.parametrize("table", TABLES)
def test_a_changed_contract_carries_a_new_version(table: str) -> None:
    """`versions.json` pins the columns of every released version; a change asks for a decision.

    A new nullable column: raise the minor version and add its entry. Anything else: raise the major version.
    """
    spec = data_contracts.contract(table)
    pinned = json.loads(VERSIONS.read_text())[table]
    assert spec.version in pinned, f"{table} {spec.version} is not pinned in {VERSIONS.name}"
    assert pinned[spec.version] == _columns(table), f"{table}: columns changed without a new version"


@pytest.mark.parametrize("table", TABLES)
def test_data_of_every_released_version_still_loads(table: str) -> None:
    current = data_contracts.contract(table)
    for version, columns in json.loads(VERSIONS.read_text())[table].items():
        if version.split(".")[0] != current.version.split(".")[0]:
            continue
        old = pa.schema(
            [pa.field(n, current.schema.field(n).type) for n in columns],
            metadata={b"contract_version": version.encode()},
        )
        assert data_contracts.conform(table, old.empty_table()).schema == current.schema


def test_an_older_row_gets_null_in_a_column_it_did_not_have() -> None:
    rows = data_contracts.from_rows("quarantine", [{"rule": "duration_ns > 0"}])
    older = rows.drop_columns(["raw_text"])
    assert data_contracts.conform("quarantine", older)["raw_text"].null_count == 1


def test_a_table_that_does_not_fit_is_refused_by_name() -> None:
    empty = data_contracts.schema("samples").empty_table()
    with pytest.raises(ContractError, match="required column capture_id is missing"):
        data_contracts.conform("samples", empty.drop_columns(["capture_id"]))
    with pytest.raises(ContractError, match="table samples: unknown column colour"):
        data_contracts.conform("samples", empty.append_column("colour", pa.array([], pa.string())))
    with pytest.raises(ContractError, match="unknown column colour"):
        data_contracts.from_rows("samples", [{"colour": "red"}])
    with pytest.raises(ContractError, match="data of contract version 9.0.0 cannot be read"):
        data_contracts.conform("samples", empty.replace_schema_metadata({b"contract_version": b"9.0.0"}))
    with pytest.raises(ContractError, match="no contract for table 'sample'; known: alignments"):
        data_contracts.contract("sample")


def test_a_misspelt_key_in_a_contract_names_the_file(tmp_path: Path) -> None:
    broken = tmp_path / "samples.yaml"
    broken.write_text((FOLDER / "samples.yaml").read_text().replace("logicalType", "logicalTyp", 1))
    with pytest.raises(ContractError, match="samples.yaml: .*logicalTyp"):
        load(broken)
