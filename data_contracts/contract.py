"""Contracts as typed objects: load one, ask it for its Arrow schema and rules, bring rows into its shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml
from open_data_contract_standard.model import (
    DataQuality,
    OpenDataContractStandard,
    SchemaObject,
    SchemaProperty,
)
from pydantic import BaseModel

from tilewatch.data_contracts import arrow_types
from tilewatch.data_contracts.errors import TilewatchError

FOLDER = Path(__file__).parent
VERSION_KEY = b"contract_version"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C where PyYAML has it: every command reads contracts, and in Python one takes 35 ms."""


class ContractError(TilewatchError):
    """A contract file or a table that does not keep its contract; the message names table and column."""


@dataclass(frozen=True)
class Column:
    """One column of a contract. ``unit`` is the SI-like unit in the name (``ns``, ``bytes``) or None.

    ``older_rows`` is what rows hold that were written before the column existed; with it a required column
    may be added in a minor version.
    """

    name: str
    type: pa.DataType
    physical_type: str
    required: bool
    key: bool
    unit: str | None
    description: str
    older_rows: Any = None


@dataclass(frozen=True)
class Contract:
    """One table: its columns in order, its Great Expectations rules and its version."""

    name: str
    version: str
    purpose: str
    columns: tuple[Column, ...]
    rules: tuple[dict[str, Any], ...]

    @cached_property
    def schema(self) -> pa.Schema:
        """Arrow schema; nullability and descriptions included, the version in the metadata."""
        fields = [
            pa.field(c.name, c.type, nullable=not c.required, metadata={"description": c.description})
            for c in self.columns
        ]
        return pa.schema(fields, metadata={VERSION_KEY: self.version.encode()})

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the primary key columns, in order."""
        return tuple(c.name for c in self.columns if c.key)

    @property
    def older_rows(self) -> dict[str, Any]:
        """What rows written before a column existed hold in it, by column; columns without are null there."""
        return {c.name: c.older_rows for c in self.columns if c.older_rows is not None}

    @property
    def partition(self) -> str | None:
        """The partition column, ``build`` for all tables that have one."""
        return "build" if any(c.name == "build" for c in self.columns) else None


def table_names() -> tuple[str, ...]:
    """Names of all tables that have a contract, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


@cache
def contract(table: str) -> Contract:
    """The contract of ``table``. Raises ContractError where there is none or the file is malformed."""
    path = FOLDER / f"{table}.yaml"
    if not path.is_file():
        raise ContractError(f"no contract for table {table!r}; known: {', '.join(table_names())}")
    return load(path)


def load(path: Path) -> Contract:
    """Read one contract file. Unknown keys are refused at every level; every failure names the file."""
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _LOADER)
        document = OpenDataContractStandard.model_validate(raw)
        (table,) = document.schema_ or []
        _refuse_unknown_keys(path, raw["schema"][0])
        columns = tuple(_column(p) for p in table.properties or [])
        rules = tuple(_rule(path, q.model_dump()) for q in table.quality or [])
    except (ValueError, yaml.YAMLError) as error:
        raise ContractError(f"{path.name}: {error}") from error
    return Contract(str(document.name), str(document.version), _purpose(table), columns, rules)


def schema(table: str) -> pa.Schema:
    """Arrow schema of ``table``."""
    return contract(table).schema


def expectations(table: str) -> list[dict[str, Any]]:
    """Great Expectations rules of ``table`` as ``{type, kwargs, severity, description}``.

    A not-null rule for every required column comes first; it follows from ``required``.
    """
    spec = contract(table)
    required: list[dict[str, Any]] = [
        {
            "type": "expect_column_values_to_not_be_null",
            "kwargs": {"column": c.name},
            "severity": "error",
            "description": f"{c.name} is required",
        }
        for c in spec.columns
        if c.required
    ]
    return required + [dict(rule) for rule in spec.rules]


def from_rows(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Build ``table`` from rows. Columns a row leaves out are null; unknown columns raise ContractError."""
    spec = schema(table)
    if unknown := sorted({name for row in rows for name in row} - set(spec.names)):
        raise ContractError(f"table {table}: unknown column {', '.join(unknown)}")
    try:
        arrays = [pa.array([row.get(f.name) for row in rows], type=f.type) for f in spec]
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ContractError(f"table {table}: {error}") from error
    return pa.Table.from_arrays(arrays, schema=spec)


def conform(table: str, data: pa.Table) -> pa.Table:
    """``data`` in the columns, order and types of the present contract.

    A column that an older minor version did not have becomes what the contract says of older rows, else null;
    a missing required column, an unknown column, an unsafe cast or another major version raises
    ContractError.
    """
    spec = contract(table)
    _same_major(spec, data)
    if unknown := sorted(set(data.column_names) - {c.name for c in spec.columns}):
        raise ContractError(f"table {table}: unknown column {', '.join(unknown)}")
    arrays = []
    for column in spec.columns:
        older = pa.scalar(column.older_rows, column.type)
        if column.name not in data.column_names:
            if column.required and not older.is_valid:
                raise ContractError(f"table {table}: required column {column.name} is missing")
            arrays.append(pa.repeat(older, data.num_rows))
            continue
        try:
            values = data.column(column.name).cast(column.type)
            arrays.append(pc.fill_null(values, older) if older.is_valid else values)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ContractError(f"table {table}, column {column.name}: {error}") from error
    return pa.Table.from_arrays(arrays, schema=spec.schema)


def _same_major(spec: Contract, data: pa.Table) -> None:
    found = (data.schema.metadata or {}).get(VERSION_KEY)
    if found is not None and found.decode().split(".")[0] != spec.version.split(".")[0]:
        raise ContractError(
            f"table {spec.name}: data of contract version {found.decode()} cannot be read by version "
            f"{spec.version}; rebuild it from raw"
        )


def _column(prop: SchemaProperty) -> Column:
    more = {str(c.property): c.value for c in prop.customProperties or []}
    return Column(
        name=str(prop.name),
        type=arrow_types.parse(str(prop.physicalType)),
        physical_type=str(prop.physicalType),
        required=bool(prop.required),
        key=bool(prop.primaryKey),
        unit=str(more["unit"]) if "unit" in more else None,
        description=str(prop.description),
        older_rows=more.get("older_rows"),
    )


def _refuse_unknown_keys(path: Path, table: dict[str, Any]) -> None:
    """The standard's model forbids unknown keys at the top only; a misspelt key below would be lost."""
    levels: list[tuple[type[BaseModel], dict[str, Any]]] = [(SchemaObject, table)]
    levels += [(SchemaProperty, p) for p in table.get("properties", [])]
    levels += [(DataQuality, q) for q in table.get("quality", [])]
    for model, body in levels:
        known = {field.alias or name for name, field in model.model_fields.items()}
        if unknown := sorted(set(body) - known):
            where = body.get("name") or body.get("description") or path.stem
            raise ContractError(f"{path.name}: {where}: unknown key {', '.join(unknown)}")


def _rule(path: Path, quality: dict[str, Any]) -> dict[str, Any]:
    body = quality["implementation"]
    if quality.get("engine") != "greatExpectations" or not isinstance(body, dict):
        raise ContractError(f"{path.name}: a rule must be a greatExpectations mapping, not {body!r}")
    return {
        "type": body["type"],
        "kwargs": dict(body["kwargs"]),
        "severity": quality.get("severity") or "error",
        "description": quality.get("description") or body["type"],
    }


def _purpose(table: SchemaObject) -> str:
    return str(table.description)
