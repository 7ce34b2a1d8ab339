"""``samples.jsonl`` of a capture: one JSON object a line, parsed by column; bad lines go to quarantine.

Format: the measuring program's ``sampling.py``. Times are int64 nanoseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tilewatch.data_contracts import conform
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult
from tilewatch.tasks.read.tabular.cells import BoolArray

FILE = "samples.jsonl"
_FIELDS = pa.schema(
    [
        pa.field("point_id", pa.string(), nullable=False),
        pa.field("sample", pa.int64(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("calls", pa.int64(), nullable=False),
        pa.field("interval_ns", pa.int64()),
        pa.field("duration_ns", pa.int64()),
        pa.field("null_reason", pa.string()),
        pa.field("host_enqueue_ns", pa.int64()),
        pa.field("device_event_ns", pa.int64()),
        pa.field("warm_up", pa.bool_(), nullable=False),
        pa.field("discarded", pa.bool_(), nullable=False),
        pa.field("discard_reason", pa.string()),
        pa.field("throttled", pa.bool_(), nullable=False),
    ]
)
_PYTHON_TYPES = {pa.string(): str, pa.int64(): int, pa.bool_(): bool}
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class _Lines:
    """Parsed rows with the line that each stood on, and the lines that could not be parsed."""

    rows: pa.Table
    numbers: np.ndarray[Any, np.dtype[np.int64]]
    texts: list[bytes]
    refusals: list[Refusal]


def read_samples(
    path: Path, origin: Origin, identity: Mapping[str, str], planned: Collection[str]
) -> ReadResult:
    """``samples`` rows of one capture. ``identity`` adds role and method_hash; ``planned`` are its points.

    ``facts["interval_ns"]`` is the time inside operator calls by point, warm-up and discarded ones included.
    """
    lines = _parse(path.read_bytes())
    refusals = list(lines.refusals)
    bad = np.zeros(lines.rows.num_rows, dtype=np.bool_)
    for field, rule, reason, mask in _rules(lines.rows, planned):
        refusals += [
            _refusal(lines, int(index), field, rule, reason) for index in np.flatnonzero(mask & ~bad)
        ]
        bad |= mask
    good = lines.rows.filter(pa.array(~bad))
    spent = good.group_by("point_id").aggregate([("interval_ns", "sum")])
    table = good.drop_columns(["interval_ns"]).append_column("source_line", pa.array(lines.numbers[~bad]))
    for name, value in {**origin.columns(), **identity, "source_file": FILE}.items():
        column = pa.repeat(pa.scalar(value), table.num_rows)
        table = table.append_column(name, column)
    facts = dict(zip(spent["point_id"].to_pylist(), spent["interval_ns_sum"].to_pylist(), strict=True))
    return ReadResult(
        conform("samples", table), refused_rows(origin, "samples", refusals), {"interval_ns": facts}
    )


def _rules(rows: pa.Table, planned: Collection[str]) -> Iterator[tuple[str, str, str, BoolArray]]:
    """Field, rule, reason and the rows that break it."""
    for field in _FIELDS:
        if not field.nullable:
            yield field.name, "required", f"{field.name} is missing", _mask(rows[field.name].is_null())
    known = pc.is_in(rows["point_id"], value_set=pa.array(sorted(planned), pa.string()))
    yield "point_id", "planned", "no such point in plan.json", _mask(pc.invert(known))
    for name, least in (("sample", 0), ("position", 0), ("calls", 1), ("duration_ns", 1)):
        low = pc.fill_null(pc.less(rows[name], least), False)
        yield name, "minimum", f"{name} is below {least}", _mask(low)
    silent = pc.and_(rows["duration_ns"].is_null(), rows["null_reason"].is_null())
    yield "null_reason", "reason", "no duration, and no reason why", _mask(silent)
    unexplained = pc.and_(rows["discarded"], rows["discard_reason"].is_null())
    yield "discard_reason", "reason", "discarded without a reason", _mask(pc.fill_null(unexplained, False))
    yield "sample", "unique", "the same point and sample stand above", _repeats(rows)


def _repeats(rows: pa.Table) -> BoolArray:
    keys = pc.binary_join_element_wise(
        pc.fill_null(rows["point_id"], ""), rows["sample"].cast(pa.string()), "/", null_handling="replace"
    )
    codes = keys.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    first = np.unique(codes, return_index=True)[1]
    repeated = np.ones(len(codes), dtype=np.bool_)
    repeated[first] = False
    return repeated


def _mask(column: pa.ChunkedArray) -> BoolArray:
    mask: BoolArray = column.to_numpy().astype(np.bool_)
    return mask


def _refusal(lines: _Lines, index: int, field: str, rule: str, reason: str) -> Refusal:
    number = int(lines.numbers[index])
    value = lines.rows[field][index].as_py()
    text = lines.texts[number - 1].decode("utf-8", "replace")
    return Refusal(FILE, number, rule, reason, field, None if value is None else str(value), text)


def _parse(content: bytes) -> _Lines:
    """All lines at once; where one of them is malformed, one by one."""
    texts = content.splitlines()
    if not texts:
        return _Lines(_FIELDS.empty_table(), np.zeros(0, dtype=np.int64), texts, [])
    options = pj.ParseOptions(
        explicit_schema=pa.schema([f.with_nullable(True) for f in _FIELDS]),
        unexpected_field_behavior="ignore",
    )
    try:
        rows = pj.read_json(pa.BufferReader(content), parse_options=options)
    except pa.ArrowInvalid:
        return _one_by_one(texts)
    if rows.num_rows != len(texts):
        return _one_by_one(texts)
    return _Lines(rows, np.arange(1, len(texts) + 1), texts, [])


def _one_by_one(texts: list[bytes]) -> _Lines:
    rows, numbers, refusals = [], [], []
    for number, text in enumerate(texts, start=1):
        fault = _fault(text)
        if fault is None:
            rows.append(orjson.loads(text))
            numbers.append(number)
        elif text.strip():
            refusals.append(Refusal(FILE, number, "json", fault, raw_text=text.decode("utf-8", "replace")))
    schema = pa.schema([f.with_nullable(True) for f in _FIELDS])
    table = pa.Table.from_pylist([{n: r.get(n) for n in schema.names} for r in rows], schema=schema)
    return _Lines(table, np.array(numbers, dtype=np.int64), texts, refusals)


def _fault(text: bytes) -> str | None:
    """Why a line is not a row, or None."""
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return f"not JSON: {error}"
    if not isinstance(row, dict):
        return f"not an object but {type(row).__name__}"
    for field in _FIELDS:
        value = row.get(field.name)
        if value is None:
            continue
        if type(value) is not _PYTHON_TYPES[field.type]:
            return f"{field.name}: {value!r} is not {field.type}"
        if type(value) is int and abs(value) > _INT64_MAX:
            return f"{field.name}: {value} does not fit into 64 bits"
    return None
