"""A CSV whose columns are those of a contract, read as a whole: what the small formats share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from tilewatch.data_contracts import schema
from tilewatch.tasks.read.kernels.counters import counter_maps
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.constants import Constants
from tilewatch.tasks.read.tabular.csv_rows import CsvFile, RowBlock
from tilewatch.tasks.read.tabular.layout import Layout

Columns = dict[str, pa.Array]


def _unchanged(columns: Columns) -> Columns:
    return columns


def read_rows(
    path: Path,
    origin: Origin,
    source_file: str | None,
    layout: Layout,
    derive: Callable[[Columns], Columns] = _unchanged,
) -> ReadResult:
    """The table of ``layout.table`` from one CSV.

    Fields whose column is not in the contract are checked and left out. ``derive`` may add columns to those
    of a block of rows.
    """
    file = CsvFile(path, source_file or path.name, layout)
    return collect(file, file.blocks(), origin, derive)


def collect(
    file: CsvFile,
    blocks: Iterable[RowBlock],
    origin: Origin,
    derive: Callable[[Columns], Columns] = _unchanged,
) -> ReadResult:
    """All good rows of ``blocks`` as one table, all refused rows as another, and the facts of the file."""
    layout = file.layout
    spec = schema(layout.table)
    constants = Constants(origin, file.source_file)
    tables, refusals, first = [spec.empty_table()], list[Refusal](), 0
    for block in blocks:
        rows = len(block.lines)
        columns: Columns = constants.columns(rows)
        for field in layout.fields:
            if (values := block.column(field.column)) is not None:
                is_text = pa.types.is_dictionary(values.type)
                columns[field.column] = values.cast(pa.string()) if is_text else values
        columns["row_index"] = pa.array(np.arange(first, first + rows, dtype=np.int64))
        columns["source_line"] = pa.array(block.lines)
        if block.header.counters:
            columns["metrics"] = counter_maps(block.header.counters, block.counters(), None)
        columns = derive(columns)
        arrays = [columns[f.name] if f.name in columns else constants.absent(f.type, rows) for f in spec]
        tables.append(pa.Table.from_arrays(arrays, schema=spec))
        refusals += block.refusals
        first += rows
    quarantine = refused_rows(origin, layout.table, refusals + file.refusals)
    return ReadResult(pa.concat_tables(tables), quarantine, file.facts)
