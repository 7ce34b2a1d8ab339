"""What the caller and the validating process exchange: Arrow files and a line in, JSON out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from tilewatch.data_contracts import ContractError, table_names
from tilewatch.tasks.files import write_whole
from tilewatch.tasks.validate.wording import Rule, fields_of

ANSWER = "outcomes.json"
GO = b"\n"
"""The line on its standard input by which the validating process learns that the tables are there."""


@dataclass(frozen=True)
class Outcome:
    """What one rule of a table's contract found."""

    rule_index: int
    """Position in ``data_contracts.expectations(table)``."""
    success: bool
    row_level: bool
    """True where the rule names single rows; False where it judges the table or could not run."""
    row_count: int
    """Rows the rule looked at, its condition applied."""
    failed_rows: tuple[int, ...]
    """Row numbers from 0, ascending."""
    detail: str | None
    """The observed value of a table rule, or the text of the exception that kept the rule from running."""


def looked_at(table: pa.Table, rules: Sequence[Rule]) -> pa.Table:
    """The columns of ``table`` that ``rules`` name: of millions of kernels a tenth of the bytes."""
    wanted = {name for rule in rules for name in fields_of(rule)}
    wanted |= {name for rule in rules for name in re.findall(r"\w+", rule["kwargs"].get("row_condition", ""))}
    return table.select([name for name in table.column_names if name in wanted])


def write_tables(folder: Path, tables: Mapping[str, pa.Table]) -> None:
    """One ``<table>.arrow`` file a table."""
    for name, table in tables.items():
        with pa.ipc.new_file(str(folder / f"{name}.arrow"), table.schema) as sink:
            sink.write_table(table)


def read_tables(folder: Path) -> dict[str, Path]:
    """Files of the tables handed over, by name. Raises ContractError for one without a contract."""
    found = {path.stem: path for path in sorted(folder.glob("*.arrow"))}
    if unknown := sorted(set(found) - set(table_names())):
        raise ContractError(f"no contract for table {', '.join(unknown)}")
    return found


def read_table(path: Path) -> pa.Table:
    """One handed-over table, memory-mapped."""
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def write_outcomes(folder: Path, outcomes: Mapping[str, Sequence[Outcome]]) -> None:
    """The answer file, complete or not there at all."""
    answer = {name: [asdict(o) for o in rules] for name, rules in outcomes.items()}
    write_whole(folder / ANSWER, orjson.dumps(answer))


def read_outcomes(folder: Path) -> dict[str, list[Outcome]]:
    """The answer by table. Raises FileNotFoundError where the process left none."""
    answer: dict[str, list[dict[str, Any]]] = orjson.loads((folder / ANSWER).read_bytes())
    return {
        name: [Outcome(**{**o, "failed_rows": tuple(o["failed_rows"])}) for o in rules]
        for name, rules in answer.items()
    }
