"""Refused rows as a table: where each stood, what it said, which rule refused it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from tilewatch.data_contracts import from_rows, schema
from tilewatch.tasks.read.origin import Origin

RAW_TEXT_LIMIT = 4000


@dataclass(frozen=True)
class Refusal:
    """One refused row. ``rule`` is a short stable name, ``reason`` a sentence.

    ``source_line`` counts from 1 and is None where the whole file is refused; ``field`` is None where no
    single field is to blame.
    """

    source_file: str
    source_line: int | None
    rule: str
    reason: str
    field: str | None = None
    value: str | None = None
    raw_text: str | None = None


def refused_rows(origin: Origin, table: str, refusals: Iterable[Refusal]) -> pa.Table:
    """Contract ``quarantine`` rows for rows that were meant for ``table``.

    ``quarantine_id`` is a hash of capture, place, field, value and rule: reading the same bytes again gives
    the same ids, and a refusal said twice is stored once.
    """
    rows = {}
    for refusal in refusals:
        identity = _quarantine_id(origin, table, refusal)
        rows[identity] = {
            "quarantine_id": identity,
            "capture_id": origin.capture_id,
            "run_id": origin.run_id,
            "build": origin.build,
            "stage": "read",
            "table": table,
            "source_file": refusal.source_file,
            "source_line": refusal.source_line,
            "field": refusal.field,
            "value": _cut(refusal.value),
            "rule": refusal.rule,
            "reason": refusal.reason,
            "raw_text": _cut(refusal.raw_text),
        }
    return from_rows("quarantine", list(rows.values())) if rows else _no_rows()


@cache
def _no_rows() -> pa.Table:
    return schema("quarantine").empty_table()


def _quarantine_id(origin: Origin, table: str, refusal: Refusal) -> str:
    place = (
        origin.capture_id,
        table,
        refusal.source_file,
        str(refusal.source_line),
        refusal.field or "",
        refusal.value or "",
        refusal.rule,
    )
    return hashlib.sha256("\x1f".join(place).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _cut(text: str | None) -> str | None:
    if text is None:
        return None
    return text[:RAW_TEXT_LIMIT].encode("utf-8", "replace").decode("utf-8")
