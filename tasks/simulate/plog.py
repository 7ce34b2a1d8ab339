"""The log of a simulated tiling process, in the wording of CANN 8.5–9.2's one-kernel calls.

Each launch: core limits, the operator's dump of its tiling data, decision, workspace, launch, and the
runtime's line. ``tilewatch.tasks.read.plog.reader`` reads it as it reads a device's log.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from tilewatch.tasks.predict.environment import Platform
from tilewatch.tasks.predict.records import TilingRecord
from tilewatch.tasks.read.plog.tiling_layouts import Layout, registered

CHUNK_CHARACTERS = 640
LINE_NS = 40_000
THREAD = 4242
DATA_BYTES = {"DynamicQuant": 240, "QuantBatchMatmulV3": 376, "GroupedMatmul": 1864}
"""Size of the tiling data on NpuArch 2201."""

API = {
    "DynamicQuant": "aclnnDynamicQuant",
    "QuantBatchMatmulV3": "aclnnQuantMatmulV4",
    "GroupedMatmul": "aclnnGroupedMatmulV4",
    "MatMulV3": "aclnnMatmul",
}

_LAYOUTS = {(op_type, size): layout for op_type, size, layout in registered()}
_FROM_COLUMNS = {
    "baseM": "base_m", "baseN": "base_n", "baseK": "base_k", "usedCoreNum": "used_core_num",
    "coreNum": "used_core_num", "singleN": "single_n", "workspaceSize": "workspace_bytes",
}  # fmt: skip
_FROM_SHAPE = {
    "M": "m_executed", "m": "m_executed", "N": "n", "n": "n", "Ka": "k", "Kb": "k", "k": "k",
    "groupNum": "local_experts",
}  # fmt: skip


class PlogWriter:
    """Collects the lines of one process; ``text`` is the log so far."""

    def __init__(self, pid: int, started_ns: int, platform: Platform) -> None:
        self._pid, self._now_ns = pid, started_ns
        self._platform = platform
        self._lines: list[str] = []
        self._sequence = 0

    @property
    def text(self) -> str:
        """The whole log; every line ends."""
        return "".join(f"{line}\n" for line in self._lines)

    def launch(self, record: TilingRecord, point: Mapping[str, Any]) -> None:
        """Write the lines of one launch. Raises ValueError for a record without a key or block dim."""
        if record.tiling_key is None or record.block_dim is None:
            raise ValueError(f"{record.op_type}: a launch needs a tiling key and a block dim")
        self._sequence += 1
        op_type, key, blocks = record.op_type, record.tiling_key, record.block_dim
        name = f"{API[op_type]}_{self._sequence}"
        cores = self._platform
        self._op(
            f"aic num: {cores.cube_cores}, aiv num: {cores.vector_cores}, deterministic level: 0, "
            "is deterministic on: 0", name, "INFO",
        )  # fmt: skip
        for chunk in _dump(record, point):
            self._op(chunk, f"{op_type}:{op_type}", "DEBUG", "DumpTilingInfo")
        self._op(
            f"Tiling outputs of {op_type} are [tilingKey: {key}, numBlocks: {blocks}, scheMode: "
            f"{record.schedule_mode or 0}, needAtomic: 0, aicpuNumBlocks: 0, dynBufSize: 0].", name, "INFO",
        )  # fmt: skip
        if record.workspace_bytes is not None:
            self._op(
                f"Op[{op_type}] workspace num is 1, workspaceLen is {record.workspace_bytes} bytes, "
                "bin path is /simulated.o.", name, "DEBUG",
            )  # fmt: skip
        self._op(
            f"Launch dynamic kernel {op_type} task, tilingKey is {key}, scheMode is "
            f"{record.schedule_mode or 0}, numBlocks is {blocks}, stream is 0x2", name, "INFO",
        )  # fmt: skip
        kernel = f"{op_type}_{hashlib.sha256(op_type.encode()).hexdigest()[:32]}_{key}"
        self._line(
            "INFO", "RUNTIME",
            f"[aix.cc:27] {THREAD} LaunchKernelForStars: kernel info : device_id=0, stream_id=2, "
            f"task_id={self._sequence}, kernelAttrType=AICORE, kernel_name={kernel}, arg_size=200, "
            f"coreDim={blocks}, taskRation=2, funcType=3",
        )  # fmt: skip

    def _op(self, text: str, name: str, level: str, function: str = "Launch") -> None:
        self._line(level, "OP", f"[op.h:25][NNOP][{function}][{THREAD}] OpName:[{name}] {text}")

    def _line(self, level: str, module: str, tail: str) -> None:
        self._now_ns += LINE_NS
        second = datetime.fromtimestamp(self._now_ns // 10**9, UTC).strftime("%Y-%m-%d-%H:%M:%S")
        micros = self._now_ns // 1_000 % 1_000_000
        time = f"{second}.{micros // 1000:03d}.{micros % 1000:03d}"
        self._lines.append(f"[{level}] {module}({self._pid},python3):{time} {tail}")


def _dump(record: TilingRecord, point: Mapping[str, Any]) -> Iterator[str]:
    """The dump of the tiling data in the chunks the logger splits it into; none without a known layout."""
    size_bytes = DATA_BYTES.get(record.op_type)
    if size_bytes is None:
        return
    words = tiling_words(_LAYOUTS[record.op_type, size_bytes], record, point)
    text = (
        f"Start to dump tiling info. tilingkey:{record.tiling_key}, tiling data size:{size_bytes}, content:"
    )
    for word in words:
        if len(text) > CHUNK_CHARACTERS:
            yield text
            text = ""
        text += f"{word},"
    yield text


def tiling_words(layout: Layout, record: TilingRecord, point: Mapping[str, Any]) -> tuple[int, ...]:
    """Tiling data of ``record`` in ``layout`` as unsigned 32-bit words; what it does not say is 0."""
    packed = b""
    for names, code in layout:
        for name in names:
            plain, _, count = name.partition("[")
            length = int(count[:-1]) if count else 1
            packed += struct.pack(f"<{length}{code}", *[_value(plain, record, point)] * min(length, 1),
                                  *[0] * (length - 1))  # fmt: skip
    return struct.unpack(f"<{len(packed) // 4}I", packed)


def _value(name: str, record: TilingRecord, point: Mapping[str, Any]) -> int:
    if name in record.fields:
        return int(record.fields[name])
    if name in _FROM_COLUMNS:
        return int(getattr(record, _FROM_COLUMNS[name]) or 0)
    return int(point.get(_FROM_SHAPE.get(name, ""), 0) or 0)
