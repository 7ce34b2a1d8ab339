"""One tiling decision while it is put together from log lines, and the Arrow rows it ends as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

import pyarrow as pa

from tilewatch.data_contracts import schema
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.plog.lines import LogLine
from tilewatch.tasks.read.plog.tiling_layouts import DecodedFields
from tilewatch.tasks.read.tabular.arrow_columns import arrow_column

UNKNOWN_OP = "unknown"

# CANN's names of the fields that have a column of their own; the rest stays in ``fields`` under CANN's name.
_COLUMN_OF = {
    "baseM": "base_m",
    "base_m": "base_m",
    "baseN": "base_n",
    "base_n": "base_n",
    "baseK": "base_k",
    "base_k": "base_k",
    "usedCoreNum": "used_core_num",
    "used_core_num": "used_core_num",
    "usedCore": "used_core_num",
    "coreNum": "used_core_num",
    "bestSingleN": "single_n",
    "singleN": "single_n",
    "tuning_config": "tuning_config",
    "tuningConfig": "tuning_config",
}
# Fields that a record may have without saying anything about tiling.
_NO_TILING = {"kernel_type", "task_ration", "args", "aic_num", "aiv_num", "deterministic_level"}
_COUNTS = (("m_cnt", "base_m", ("M", "m", "m_size")), ("n_cnt", "base_n", ("N", "n", "n_size")))
_COMPUTED = (*dict.fromkeys(_COLUMN_OF.values()), "m_cnt", "n_cnt", "core_num")
# Operators by the core kind their block dim counts; only these give core_num a meaning.
_CUBE_OPS = ("MatMul", "QuantBatchMatmul", "GroupedMatmul", "BatchMatMul", "WeightQuantBatchMatmul")
_VECTOR_OPS = ("DynamicQuant", "MemSet")


@dataclass(slots=True)
class TilingRecord:
    """What is known so far of one launch.

    ``fields`` has CANN's own field names and values as text, ``decoded`` those read out of tiling data.
    """

    source_file: str
    source_line: int
    pid: int
    tid: int | None
    logged_ns: int | None
    op_type: str | None = None
    op_name: str | None = None
    op_sequence: str | None = None
    tiling_key: str | None = None
    key_source: str | None = None
    block_dim: int | None = None
    schedule_mode: int | None = None
    workspace_bytes: int | None = None
    device_id: int | None = None
    stream_id: int | None = None
    task_id: int | None = None
    flip_num: int | None = None
    kernel_name: str | None = None
    joined_by: str | None = None
    stream_k: bool | None = None
    ub_template: str | None = None
    aiv_aic_ratio: str | None = None
    fields: dict[str, str] = field(default_factory=dict)
    decoded: DecodedFields | None = None
    input_shapes: list[list[int]] | None = None
    input_dtypes: list[str] | None = None
    input_formats: list[str] | None = None
    key_contradictions: list[str] | None = None
    block_contradictions: list[str] | None = None

    @property
    def says_something(self) -> bool:
        """True where the record has a tiling fact; a launch with none is counted, not stored."""
        known = self.tiling_key is not None or self.block_dim is not None or self.decoded is not None
        return known or not self.fields.keys() <= _NO_TILING

    def take_key(self, key: str | None, source: str) -> None:
        """Set the key, or note a different one seen for the same launch.

        A kernel's name is the weakest source: any other replaces it.
        """
        if key is None or not key.isascii():
            return
        old, old_source = self.tiling_key, self.key_source
        stronger = old_source == "kernel_name" and source != "kernel_name"
        if old is None or stronger:
            self.tiling_key, self.key_source = key, source
        if old is not None and key != old:
            note = f"{old} ({old_source})" if stronger else f"{key} ({source})"
            self.key_contradictions = _noted(self.key_contradictions, note)

    def take_block(self, blocks: int | None, source: str) -> None:
        """Set the block dim, or note a different one seen later for the same launch."""
        if blocks is None:
            return
        if self.block_dim is None:
            self.block_dim = blocks
        elif blocks != self.block_dim:
            self.block_contradictions = _noted(self.block_contradictions, f"{blocks} ({source})")


_ATTRIBUTES = {f.name for f in fields(TilingRecord)} - {"fields", "decoded", "op_type"}


def start_record(source_file: str, number: int, line: LogLine) -> TilingRecord:
    """A record that begins at ``line``."""
    return TilingRecord(source_file, number, line.pid, line.tid, line.logged_ns)


def tilings_table(
    origin: Origin, records: Sequence[TilingRecord], cann_version: str | None = None
) -> pa.Table:
    """Contract ``tilings``; ``cann_version`` is the version whose layouts were used.

    A record begins at a line of its own, so the line is its index: the same however the reading was batched.
    """
    ops = [record.op_type or UNKNOWN_OP for record in records]
    split = [_split(op, r.decoded, tuple(r.fields.items())) for op, r in zip(ops, records, strict=True)]
    computed: dict[str, list[Any]] = {
        column: [columns.get(column) for columns, _, _ in split] for column in _COMPUTED
    }
    computed["op_type"] = ops
    constant = {**origin.columns(), "cann_version": cann_version}
    computed["fields"] = [(names, values) for _, names, values in split]
    arrays = []
    for field_ in schema("tilings"):
        name = "source_line" if field_.name == "tiling_index" else field_.name
        if name in computed:
            values = computed[name]
        elif name in _ATTRIBUTES:
            values = list(map(attrgetter(name), records))
        else:
            values = [constant.get(name)] * len(records)
        arrays.append(arrow_column(values, field_.type))
    return pa.Table.from_arrays(arrays, schema=schema("tilings"))


def _noted(notes: list[str] | None, note: str) -> list[str]:
    return [*(notes or []), *([] if notes and note in notes else [note])]


@lru_cache(maxsize=4096)
def _split(
    op_type: str, decoded: DecodedFields | None, fields: tuple[tuple[str, str], ...]
) -> tuple[dict[str, int], tuple[str, ...], tuple[str, ...]]:
    """Fields that have a column of their own, by column; names and values of the rest.

    Where a field was both printed and decoded, the decoded value holds.
    """
    named = {**dict(fields), **(decoded.fields if decoded else {})}
    rest = named.copy()
    columns: dict[str, int] = {}
    for name, value in named.items():
        column = _COLUMN_OF.get(name)
        if column and value.isdecimal() and column not in columns:
            columns[column] = int(value)
            del rest[name]
    for column, base, names in _COUNTS:
        size = next((int(rest[n]) for n in names if rest.get(n, "").isdecimal()), None)
        if size and (step := columns.get(base)):
            columns[column] = -(-size // step)
    if (cores := _core_num(op_type, rest)) is not None:
        columns["core_num"] = cores
    return columns, tuple(rest), tuple(rest.values())


def _core_num(op_type: str, fields: dict[str, str]) -> int | None:
    for names, limit in ((_CUBE_OPS, "aic_num"), (_VECTOR_OPS, "aiv_num")):
        if op_type.startswith(names) and fields.get(limit, "").isdecimal():
            return int(fields[limit])
    return None
