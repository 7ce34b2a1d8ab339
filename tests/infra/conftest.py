"""Tables in both places they can live, and rows for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tilewatch.data_contracts import from_rows, schema
from tilewatch.infra.objects import Endpoint
from tilewatch.infra.tables import TableStore

_EXAMPLES: list[tuple[Callable[[pa.DataType], bool], Any]] = [
    (pa.types.is_string, "x"),
    (pa.types.is_boolean, False),
    (pa.types.is_list, []),
    (pa.types.is_map, []),
    (lambda _: True, 0),
]


def rows_of(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A table with what ``rows`` say, and a dull value in every other required column."""
    dull = {
        field.name: next(value for fits, value in _EXAMPLES if fits(field.type))
        for field in schema(table)
        if not field.nullable
    }
    return from_rows(table, [{**dull, **row} for row in rows])


@pytest.fixture
def rows() -> Callable[..., pa.Table]:
    return rows_of


@pytest.fixture(params=["local", "s3"])
def tables(request: pytest.FixtureRequest, tmp_path: Path, new_bucket: Callable[[], Endpoint]) -> TableStore:
    """Empty tables, in a local folder and in the embedded store."""
    return TableStore(tmp_path / "tables" if request.param == "local" else new_bucket())


@pytest.fixture
def local_tables(tmp_path: Path) -> TableStore:
    """Empty tables in a local folder."""
    return TableStore(tmp_path / "tables")
