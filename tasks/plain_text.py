"""Names that come out of files, made harmless for whoever reads them: on a terminal, on a page, in a sheet.

A kernel name, a label or a path may hold anything. Pages escape markup by their templates; what markup does
not cover is here: characters that steer a terminal or turn the direction of a line, and cells that a
spreadsheet would calculate.
"""

from __future__ import annotations

import unicodedata

import pyarrow as pa
import pyarrow.compute as pc

KEPT = "\n\t"
"""Control characters that only lay text out."""
_FORMULA = r"^[=+\-@\t\r]"
_NUMBER = r"^[-+]?[0-9.,]+([eE][-+]?[0-9]+)?\s*%?$"


def visible(text: str) -> str:
    """``text`` with every control, direction and other invisible format character written as its code."""
    if text.isprintable():
        return text
    return "".join(_code(c) if c not in KEPT and unicodedata.category(c) in ("Cc", "Cf") else c for c in text)


def _code(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def without_formulas(table: pa.Table) -> pa.Table:
    """``table`` for a spreadsheet: a text that one would calculate begins with an apostrophe.

    Numbers stay as they are, also where they are stored as text.
    """
    for position, field in enumerate(table.schema):
        if not (pa.types.is_string(field.type) or pa.types.is_large_string(field.type)):
            continue
        cells = table.column(position)
        formula = pc.and_not(
            pc.match_substring_regex(cells, _FORMULA), pc.match_substring_regex(cells, _NUMBER)
        )
        marked = pc.binary_join_element_wise(pa.scalar("'", field.type), cells, pa.scalar("", field.type))
        table = table.set_column(position, field.name, pc.if_else(formula, marked, cells))
    return table
