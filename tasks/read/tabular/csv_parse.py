"""One block of CSV lines through Arrow's parser: typed at once, or as text with every odd line set apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tilewatch.tasks.read.tabular.layout import NULL_TOKENS, Header
from tilewatch.tasks.read.tabular.lines import IntArray, Lines

OnInvalid = Callable[[csv.InvalidRow], str]


def parse(
    header: Header,
    data: bytes,
    types: dict[str, pa.DataType],
    on_invalid: OnInvalid | None = None,
    null_tokens: tuple[str, ...] = NULL_TOKENS,
) -> pa.Table:
    """Rows of ``data`` (no header line) in the columns of ``types``.

    A row with another number of cells goes to ``on_invalid``; without it, it raises pa.ArrowInvalid, as
    does a cell that does not fit its type.
    """
    return csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(
            use_threads=False, column_names=list(header.names), block_size=max(len(data) + 1, 1 << 16)
        ),
        parse_options=csv.ParseOptions(
            delimiter=header.separator,
            ignore_empty_lines=False,
            newlines_in_values=False,
            invalid_row_handler=on_invalid,
        ),
        convert_options=csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=list(null_tokens),
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )


def parse_text(header: Header, lines: Lines, index: IntArray) -> tuple[pa.Table, IntArray, dict[int, str]]:
    """Cells as text of the lines in ``index``: the table, the line of each of its rows, and refused lines.

    A parser that finds more or fewer rows than there are lines was misled by a quote: the lines are halved
    until the misleading one stands alone.
    """
    types = dict.fromkeys(header.kinds, pa.string())
    if not len(index):
        return pa.table({name: pa.array([], pa.string()) for name in types}), index, {}
    invalid: list[csv.InvalidRow] = []

    def skip(row: csv.InvalidRow) -> str:
        invalid.append(row)
        return "skip"

    try:
        table = parse(header, lines.join(index), types, skip, null_tokens=())
        read = table.num_rows + len(invalid)
    except pa.ArrowException:
        table, read = None, -1
    if read == len(index):
        wrong = {int(index[row.number - 1]): wrong_width(row) for row in invalid}
        return table, np.setdiff1d(index, np.fromiter(wrong, np.int64, len(wrong))), wrong
    if len(index) == 1:
        empty = pa.table({name: pa.array([], pa.string()) for name in types})
        return empty, index[:0], {int(index[0]): "quotes do not delimit cells"}
    half = len(index) // 2
    left, left_index, left_wrong = parse_text(header, lines, index[:half])
    right, right_index, right_wrong = parse_text(header, lines, index[half:])
    whole = np.concatenate((left_index, right_index))
    return pa.concat_tables([left, right]), whole, left_wrong | right_wrong


def wrong_width(row: csv.InvalidRow) -> str:
    """What is wrong with a row that has another number of cells than the header."""
    return f"{row.actual_columns} cells where the header has {row.expected_columns}"


def numeric_share(texts: pa.Array) -> float | None:
    """Share of the present cells that read as a number; None where no cell is present."""
    cells = pc.drop_null(pc.utf8_trim_whitespace(texts))
    present = cells.filter(pc.invert(pc.is_in(cells, value_set=pa.array(NULL_TOKENS))))
    if not len(present):
        return None
    numeric = pc.match_substring_regex(present, r"^[+-]?[0-9.]+([eE][+-]?[0-9]+)?$")
    return float(pc.mean(numeric.cast(pa.int8())).as_py())
