"""One tiling decision while it is put together from log lines, and the Arrow rows it ends as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from data_contracts import from_rows
from tasks.read.origin import Origin
from tasks.read.plog_lines import LogLine

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
_SIZE_NAMES = {"m_cnt": ("M", "m", "m_size"), "n_cnt": ("N", "n", "n_size")}
# Operators by the core kind their block dim counts; only these give core_num a meaning.
_CUBE_OPS = ("MatMul", "QuantBatchMatmul", "GroupedMatmul", "BatchMatMul", "WeightQuantBatchMatmul")
_VECTOR_OPS = ("DynamicQuant", "MemSet")


@dataclass(slots=True)
class TilingRecord:
    """What is known so far of one launch. ``fields`` has CANN's own field names and values as text."""

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
    input_shapes: list[list[int]] = field(default_factory=list)
    input_dtypes: list[str] = field(default_factory=list)
    input_formats: list[str] = field(default_factory=list)
    key_contradictions: list[str] = field(default_factory=list)
    block_contradictions: list[str] = field(default_factory=list)

    @property
    def says_something(self) -> bool:
        """True where the record has a tiling fact; a launch with none is counted, not stored."""
        named = self.fields.keys() - _NO_TILING
        return self.tiling_key is not None or self.block_dim is not None or bool(named)

    def take_key(self, key: str | None, source: str) -> None:
        """Set the key, or note a different one seen for the same launch.

        A kernel's name is the weakest source: any other replaces it.
        """
        if key is None:
            return
        old, old_source = self.tiling_key, self.key_source
        stronger = old_source == "kernel_name" and source != "kernel_name"
        if old is None or stronger:
            self.tiling_key, self.key_source = key, source
        if old is not None and key != old:
            note = f"{old} ({old_source})" if stronger else f"{key} ({source})"
            if note not in self.key_contradictions:
                self.key_contradictions.append(note)

    def take_block(self, blocks: int | None, source: str) -> None:
        """Set the block dim, or note a different one seen later for the same launch."""
        if blocks is None:
            return
        if self.block_dim is None:
            self.block_dim = blocks
        elif blocks != self.block_dim and (note := f"{blocks} ({source})") not in self.block_contradictions:
            self.block_contradictions.append(note)

    def row(self) -> dict[str, Any]:
        """The record in the columns of the contract, without identity and index."""
        rest = dict(self.fields)
        columns: dict[str, int] = {}
        for name, column in _COLUMN_OF.items():
            value = rest.get(name)
            if value is not None and value.isdigit() and column not in columns:
                columns[column] = int(value)
                del rest[name]
        for column, names in _SIZE_NAMES.items():
            size = next((int(rest[n]) for n in names if rest.get(n, "").isdigit()), None)
            base = columns.get("base_" + column[0])
            if size and base:
                columns[column] = -(-size // base)
        op_type = self.op_type or UNKNOWN_OP
        return {
            **columns,
            "op_type": op_type,
            "op_name": self.op_name,
            "op_sequence": self.op_sequence,
            "tiling_key": self.tiling_key,
            "key_source": self.key_source,
            "block_dim": self.block_dim,
            "schedule_mode": self.schedule_mode,
            "workspace_bytes": self.workspace_bytes,
            "device_id": self.device_id,
            "stream_id": self.stream_id,
            "task_id": self.task_id,
            "flip_num": self.flip_num,
            "kernel_name": self.kernel_name,
            "joined_by": self.joined_by,
            "stream_k": self.stream_k,
            "ub_template": self.ub_template,
            "aiv_aic_ratio": self.aiv_aic_ratio,
            "core_num": _core_num(op_type, rest),
            "fields": list(rest.items()),
            "input_shapes": self.input_shapes or None,
            "input_dtypes": self.input_dtypes or None,
            "input_formats": self.input_formats or None,
            "key_contradictions": self.key_contradictions or None,
            "block_contradictions": self.block_contradictions or None,
            "pid": self.pid,
            "tid": self.tid,
            "logged_ns": self.logged_ns,
            "source_file": self.source_file,
            "source_line": self.source_line,
        }


def start_record(source_file: str, number: int, line: LogLine) -> TilingRecord:
    """A record that begins at ``line``."""
    return TilingRecord(source_file, number, line.pid, line.tid, line.logged_ns)


def tilings_table(origin: Origin, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Contract ``tilings`` for rows of ``TilingRecord.row``.

    A record begins at a line of its own, so the line is its index: the same however the reading was batched.
    """
    identity = {k: v for k, v in origin.columns().items() if k != "process_index"}
    return from_rows("tilings", [{**identity, "tiling_index": row["source_line"], **row} for row in rows])


def _core_num(op_type: str, fields: dict[str, str]) -> int | None:
    for names, limit in ((_CUBE_OPS, "aic_num"), (_VECTOR_OPS, "aiv_num")):
        if op_type.startswith(names) and fields.get(limit, "").isdigit():
            return int(fields[limit])
    return None
