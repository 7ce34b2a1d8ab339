"""The tilings of a plan's points as the table that the software NPU logs from: predicted, never measured.

One line a call: its signature, tiling key, block dim, mix block dim, workspace bytes, schedule mode, size of
the tiling data, and what the operator prints while it is tiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewatch.tasks.predict.environment import cann_version, platform
from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.predict.records import TilingRecord
from tilewatch.tasks.read.plog.tiling_layouts import registered
from tilewatch.tasks.simulate.plog import DATA_BYTES, tiling_words
from tilewatch.tasks.simulate.tiling import records_of

SOC = "Ascend910_9391"
CANN = "9.1.0"
CHUNK_CHARACTERS = 640
_LAYOUTS = {(op_type, size_bytes): layout for op_type, size_bytes, layout in registered()}


def write_tilings(points: Iterable[Mapping[str, Any]], target: Path) -> None:
    """Write the table for ``points`` of any plans to ``target``."""
    lines = {line for point in points for line in _lines(point)}
    target.write_text("".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")


def _lines(point: Mapping[str, Any]) -> Iterator[str]:
    try:
        records = records_of(point, platform(SOC), cann_version(CANN), {})
    except PredictError:
        return
    for operator, record in records.items():
        if record.tiling_key is not None and record.block_dim is not None:
            yield "\t".join((_signature(operator, point), *_cells(record, point)))


def _signature(operator: str, point: Mapping[str, Any]) -> str:
    m, k, n = point["m_executed"], point["k"], point["n"]
    if operator == "dynamic_quant":
        return f"DynamicQuant m={m} k={k}"
    nz = int(point["weight_format_requested"] == "FRACTAL_NZ")
    if operator == "quant_matmul":
        return f"QuantBatchMatmulV3 m={m} k={k} n={n} nz={nz}"
    if operator == "matmul":
        return f"MatMulV3 m={m} k={k} n={n} nz={nz}"
    experts, hint = point["local_experts"], point["tuning_config"] or 0
    int8 = int(point["dtype_w"] == "int8")
    return f"GroupedMatmul m={m} k={k} n={n} e={experts} nz={nz} int8={int8} t={hint}"


def _cells(record: TilingRecord, point: Mapping[str, Any]) -> tuple[str, ...]:
    assert record.tiling_key is not None and record.block_dim is not None
    vectors_per_cube = int((record.aiv_aic_ratio or "0:1").split(":")[0])
    name = f"{record.op_type}:{record.op_type}"
    head = "DEBUG [op_tiling.cpp:1][OPS_NN][{}][{{tid}}] OpName:[{}] "
    lines = [head.format("PrintTiling", name) + line for line in _hint(record, point)]
    lines += [head.format("DumpTilingInfo", name) + chunk for chunk in _dump(record, point)]
    numbers = (
        record.block_dim,
        record.block_dim * vectors_per_cube,
        record.workspace_bytes or 0,
        record.schedule_mode or 0,
        DATA_BYTES.get(record.op_type, 0),
    )
    return (record.tiling_key, *map(str, numbers), "\x1f".join(lines))


def _hint(record: TilingRecord, point: Mapping[str, Any]) -> tuple[str, ...]:
    """The line in which grouped matmul says what hint its tiling saw."""
    hint = point["tuning_config"] or 0
    return (f"GMM_tiling_new: tuning_config is {hint}",) if record.op_type == "GroupedMatmul" else ()


def _dump(record: TilingRecord, point: Mapping[str, Any]) -> Iterator[str]:
    """The operator's dump of its tiling data, split where the logger splits it."""
    size_bytes = DATA_BYTES.get(record.op_type)
    if size_bytes is None:
        return
    key = record.tiling_key
    text = f"Start to dump tiling info. tilingkey:{key}, tiling data size:{size_bytes}, content:"
    for word in tiling_words(_LAYOUTS[record.op_type, size_bytes], record, point):
        if len(text) > CHUNK_CHARACTERS:
            yield text
            text = ""
        text += f"{word},"
    yield text
