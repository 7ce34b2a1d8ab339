"""Launches as the graph engine logs them: ``[KernelTrace]`` blocks (2023) and KernelTaskInfo lines (2020).

A ``[KernelTrace][LaunchKernelWithFlag_<node>_<n>]`` block gives blocks, stream, task and the tiling data, as
hex (cut by the logger) and again as 64-bit argument words. The lines of 2020 give blocks, then stream and
task.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from tilewatch.tasks.read.kernels.kernel_name import read_kernel_name
from tilewatch.tasks.read.plog.lines import NUMBER, LogLine
from tilewatch.tasks.read.plog.tiling_record import TilingRecord, start_record
from tilewatch.tasks.read.plog.tiling_words import bytes_of_hex, tiling_fields, words_of_hex

_TRACE = re.compile(r"\[KernelTrace\]\[LaunchKernelWithFlag_(.+)_\d+\](.*)", re.DOTALL)
_NODE_TYPE = re.compile(r"\[KernelTrace\]\[InferShape_(.+)_\d+\]node_type\[(\w+)\]")
_BLOCK = re.compile(rf"Launch function arguments: .*block dim {NUMBER}")
_TASK = re.compile(rf"stream_id={NUMBER}, task_id={NUMBER}, flip_num={NUMBER}")
_ADDRESSES = re.compile(
    r"ArgsCompiledArgs\(address/length\): (0x[0-9a-f]+)/.*TilingData\(address/length\): (0x[0-9a-f]+)/"
)
_DATA = re.compile(rf"Tiling data\({NUMBER} bytes\): (.*)")
_RUNTIME = re.compile(
    rf"LaunchKernel: stream_id={NUMBER}, task_id={NUMBER}, kernelType=\d+, kernel_name=([^,]*)"
)
_START = re.compile(rf"KernelTaskInfo Distribute Start.* blockdim:{NUMBER}")
_KERNEL = re.compile(r"kernel name is (\S+)")
_UPDATE = re.compile(rf"UpdateTaskId \[{NUMBER}\], stream id \[{NUMBER}\]")
_EVENT = re.compile(
    rf"device_id={NUMBER}, stream_id={NUMBER}, task_id={NUMBER}, kernel_name=([^,]*), devfunc_name = (\S*)"
    rf".*task_launched_num={NUMBER}"
)
_PENDING_LIMIT = 4096


@dataclass(slots=True)
class _Trace:
    record: TilingRecord
    tiling_index: int | None = None
    size_bytes: int | None = None
    printed: bytes = b""


class GraphLaunches:
    """Launches of one process by the graph engine. Finished records go to ``sink``."""

    def __init__(self, sink: Callable[[TilingRecord], None]) -> None:
        self._sink = sink
        self._traces: dict[int | None, _Trace] = {}
        self._node_types: dict[str, str] = {}
        self._runtime: dict[int | None, tuple[int, int, str]] = {}
        self._tasks: dict[int | None, TilingRecord] = {}
        self._pending: OrderedDict[tuple[int, int], TilingRecord] = OrderedDict()

    def node_type(self, file: str, number: int, line: LogLine) -> bool:
        """The operator type of a node."""
        if found := _NODE_TYPE.search(line.text):
            self._node_types[found[1]] = found[2]
        return True

    def runtime_launch(self, file: str, number: int, line: LogLine) -> bool:
        """The runtime's launch line of 2023: stream, task and kernel name, no blocks."""
        found = _RUNTIME.search(f"{line.function}: {line.text}")
        if found:
            self._runtime[line.tid] = (int(found[1]), int(found[2]), found[3])
        return found is not None

    def trace(self, file: str, number: int, line: LogLine) -> bool:
        """One line of a ``[KernelTrace]`` launch block."""
        found = _TRACE.search(line.text)
        if found is None:
            return False
        node, text = found[1], found[2]
        if block := _BLOCK.match(text):
            self._finish_trace(line.tid)
            record = start_record(file, number, line)
            record.op_name, record.op_type, record.joined_by = node, self._node_types.get(node), "thread"
            record.take_block(int(block[1]), "launch_line")
            self._traces[line.tid] = _Trace(record)
        elif (trace := self._traces.get(line.tid)) is not None and trace.record.op_name == node:
            self._trace_detail(trace, line, text)
        return True

    def distribute(self, file: str, number: int, line: LogLine) -> bool:
        """Blocks of a launch (2020)."""
        if found := _START.search(line.text):
            record = start_record(file, number, line)
            record.joined_by = "task"
            record.take_block(int(found[1]), "launch_line")
            self._tasks[line.tid] = record
        return True

    def kernel(self, file: str, number: int, line: LogLine) -> bool:
        """Kernel name of the launch in hand (2020)."""
        if (found := _KERNEL.search(line.text)) and (record := self._tasks.get(line.tid)):
            record.kernel_name = found[1]
            record.op_type = read_kernel_name(found[1]).op_type
        return True

    def update_task(self, file: str, number: int, line: LogLine) -> bool:
        """Stream and task of the launch in hand (2020); its event line comes from another thread."""
        found = _UPDATE.search(line.text)
        if found and (record := self._tasks.pop(line.tid, None)):
            record.task_id, record.stream_id = int(found[1]), int(found[2])
            self._pending[record.stream_id, record.task_id] = record
            if len(self._pending) > _PENDING_LIMIT:
                self._sink(self._pending.popitem(last=False)[1])
        return True

    def event(self, file: str, number: int, line: LogLine) -> bool:
        """The runtime's event line (2020–21): names the operator instance; no blocks of its own."""
        found = _EVENT.search(line.text)
        if found is None:
            return False
        record = self._pending.pop((int(found[2]), int(found[3])), None) or start_record(file, number, line)
        record.device_id, record.stream_id, record.task_id = (int(found[i]) for i in (1, 2, 3))
        record.op_name, record.kernel_name = found[4], found[5]
        record.op_type = read_kernel_name(found[5]).op_type
        self._sink(record)
        return True

    def finish_all(self) -> None:
        """Hand out all launches in hand."""
        for tid in list(self._traces):
            self._finish_trace(tid)
        for record in (*self._tasks.values(), *self._pending.values()):
            self._sink(record)
        self._tasks.clear()
        self._pending.clear()

    def _trace_detail(self, trace: _Trace, line: LogLine, text: str) -> None:
        record = trace.record
        if task := _TASK.match(text):
            record.stream_id, record.task_id, record.flip_num = (int(n) for n in task.groups())
            stream, number, name = self._runtime.get(line.tid, (-1, -1, ""))
            if (stream, number) == (record.stream_id, record.task_id):
                record.kernel_name = name
                record.take_key(read_kernel_name(name).tiling_key, "kernel_name")
        elif addresses := _ADDRESSES.search(text):
            trace.tiling_index = (int(addresses[2], 16) - int(addresses[1], 16)) // 8
        elif data := _DATA.search(text):
            trace.size_bytes = int(data[1])
            trace.printed = bytes_of_hex(data[2], cut=line.cut)
        elif text.startswith("0x") and trace.tiling_index is not None and trace.tiling_index >= 0:
            words = words_of_hex(text, cut=line.cut)[trace.tiling_index :]
            whole = b"".join(word.to_bytes(8, "little") for word in words)
            if trace.size_bytes is not None and len(whole) >= trace.size_bytes:
                trace.printed = whole[: trace.size_bytes]

    def _finish_trace(self, tid: int | None) -> None:
        trace = self._traces.pop(tid, None)
        if trace is None:
            return
        fields = tiling_fields(trace.record.op_type, {}, None, trace.size_bytes, trace.printed)
        trace.record.fields |= fields
        self._sink(trace.record)
