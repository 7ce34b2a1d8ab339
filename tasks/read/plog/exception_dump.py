"""Tiling in what is printed about a failed kernel: fault lines of the runtime, ``[AIC_INFO]`` blocks, dump
sizes.

Wordings of 2022–2026. The runtime prints ``fault kernel_name=…`` before or after ``tilingKey = …,
blockDim=…`` and the argument words; the exception dumper (module IDEDD, earlier GE) prints a block that
starts with ``node_name:``. Both speak of one task, so they end as one record.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from tilewatch.tasks.read.kernels.kernel_name import kernel_op_type, read_kernel_name
from tilewatch.tasks.read.plog.lines import KEY, NUMBER, LogLine
from tilewatch.tasks.read.plog.tiling_record import TilingRecord, start_record
from tilewatch.tasks.read.plog.tiling_words import bytes_of_hex, tiling_fields, words_of_hex

_NAME = re.compile(
    rf"device_id={NUMBER}, stream_id={NUMBER}, report_stream_id={NUMBER}, task_id={NUMBER}, "
    rf"flip_num={NUMBER}, fault kernel_name=([^,]*)(, (?:func_name|fault kernel info ext)=([^,]*))?"
)
_KEY = re.compile(
    rf"tilingKey = {KEY}, print \d+ Times totalLen=\(\d+\*8\)(?:Bytes)?, argsSize=\d+"
    rf"(?:, schemMode={NUMBER})?, blockDim={NUMBER}(?:, gridDim3=\[([\d,]+)\], blockDim3=\[([\d,]+)\])?"
)
_ARGS = re.compile(rf"\[AIC_INFO\] args(?:\({NUMBER} to \d+\))? (before|after) execute: ?(.*)")
_NODE = re.compile(
    rf"\[AIC_INFO\] node_name:([^,]*), node_type:([^,]*), stream_id:{NUMBER}, task_id:{NUMBER}"
)
_TENSOR = re.compile(r"\[AIC_INFO\] input:\d+;shape:\[([\d,-]*)\];format:(\w+);dtype:(\w+);")
_DIMENSION = re.compile(r"-?\d{1,18}")
_SIMPLE = re.compile(r"\[AIC_INFO\] (block_dim|dev_func|tiling_key|tiling_data|workspace):(.*)")
_NUMBER = re.compile(r"\d{1,18}")
_KEY_DIGITS = re.compile(r"\d{1,20}")
_WORKSPACE = re.compile(rf"size:{NUMBER} bytes")
_PARAMETERS = re.compile(r"para base: (0x[0-9a-f]+)")
_LOADING = re.compile(rf"begin to load ([a-z ]+), index:{NUMBER}")
_SIZE = re.compile(rf"exception info dump args data, addr:\w+; size:{NUMBER} bytes")
_TASK_LIMIT = 4096
SOURCE = "exception_dump"
_ABSORBED = ("device_id", "flip_num", "schedule_mode", "workspace_bytes", "op_type", "op_name")


@dataclass(slots=True)
class _Fault:
    """One failed task while its lines come in; ``words`` are the 64-bit argument words by index."""

    record: TilingRecord
    named: bool = False
    keyed: bool = False
    words: dict[int, int] = field(default_factory=dict)
    words_from: str = ""
    base: int | None = None
    tiling_bytes: int | None = None
    hex_data: bytes = b""


class ExceptionDumps:
    """Failed kernels of one process. Finished records go to ``sink``; those of one task are merged."""

    def __init__(self, sink: Callable[[TilingRecord], None]) -> None:
        self._sink = sink
        self._current: dict[int | None, _Fault] = {}
        self._tasks: OrderedDict[tuple[int, int], _Fault] = OrderedDict()
        self._base: dict[int | None, int] = {}
        self._loading: dict[int | None, str] = {}

    def parameters(self, file: str, number: int, line: LogLine) -> bool:
        """Where the arguments of the failed kernel start; the tiling pointer points behind it."""
        found = _PARAMETERS.search(line.text)
        if found:
            self._base[line.tid] = int(found[1], 16)
        return found is not None

    def fault_name(self, file: str, number: int, line: LogLine) -> bool:
        """Task and kernel name of a failed kernel. The runtime repeats it at every synchronise."""
        found = _NAME.search(line.text)
        if found is None:
            return False
        device, stream, _, task, flip = (int(found[i]) for i in range(1, 6))
        fault = self._current.get(line.tid)
        if fault is None or fault.named:
            known = self._tasks.get((stream, task))
            if known is not None and known.record.flip_num in (None, flip) and known.named:
                return True
            fault = self._begin(file, number, line)
        record = fault.record
        record.device_id, record.stream_id, record.task_id, record.flip_num = device, stream, task, flip
        self._take_kernel(record, found[6], found[8], cut=line.cut and found[7] is None)
        fault.named = True
        self._current[line.tid] = self._keep(fault)
        return True

    def fault_key(self, file: str, number: int, line: LogLine) -> bool:
        """Key and blocks of a failed kernel."""
        found = _KEY.search(line.text)
        if found is None:
            return False
        fault = self._current.get(line.tid)
        if fault is None or fault.keyed:
            fault = self._begin(file, number, line)
        record, fault.keyed = fault.record, True
        record.take_key(found[1], SOURCE)
        record.take_block(int(found[3]), SOURCE)
        if found[2]:
            record.schedule_mode = int(found[2])
        if found[4]:
            record.fields |= {"gridDim3": found[4], "blockDim3": found[5]}
        return True

    def block_line(self, file: str, number: int, line: LogLine) -> bool:
        """Any line with ``[AIC_INFO]``: argument words, or one line of the dumper's block."""
        if found := _ARGS.search(line.text):
            self._args(file, number, line, int(found[1] or 0), f"{line.module} {found[2]}", found[3])
        elif found := _NODE.search(line.text):
            fault = self._begin(file, number, line)
            fault.record.stream_id, fault.record.task_id = int(found[3]), int(found[4])
            fault.record.op_name = found[2] if found[2].startswith("acl") else found[1]
            fault.record.op_type = kernel_op_type(found[1]) or found[2]
            self._current[line.tid] = self._keep(fault)
        elif (current := self._current.get(line.tid)) is not None:
            _read_block_line(current, line)
        return True

    def dump_size(self, file: str, number: int, line: LogLine) -> bool:
        """Sizes of workspace and tiling data as the dumper loads them."""
        if found := _LOADING.search(line.text):
            self._loading[line.tid] = found[1]
        elif (found := _SIZE.search(line.text)) and (fault := self._current.get(line.tid)):
            size, what = int(found[1]), self._loading.pop(line.tid, "")
            if what == "workspace" and fault.record.workspace_bytes is None:
                fault.record.workspace_bytes = size
            elif what == "tiling data":
                fault.tiling_bytes = size
        return True

    def finish_all(self) -> None:
        """Hand out what is known of every failed kernel."""
        faults = {id(f): f for f in (*self._tasks.values(), *self._current.values())}
        for fault in faults.values():
            self._finish(fault)
        self._tasks.clear()
        self._current.clear()

    def _begin(self, file: str, number: int, line: LogLine) -> _Fault:
        old = self._current.get(line.tid)
        if old is not None and not any(old is kept for kept in self._tasks.values()):
            self._finish(old)
        fault = _Fault(start_record(file, number, line), base=self._base.get(line.tid))
        fault.record.joined_by = "task"
        self._current[line.tid] = fault
        return fault

    def _args(self, file: str, number: int, line: LogLine, index: int, source: str, text: str) -> None:
        fault = self._current.get(line.tid)
        if fault is None or (index == 0 and fault.words_from == source and fault.words):
            fault = self._begin(file, number, line)
        if fault.words_from not in ("", source):
            return  # the runtime and the dumper print the same words
        fault.words_from = source
        fault.base = fault.base or self._base.get(line.tid)
        for offset, word in enumerate(words_of_hex(text, cut=line.cut)):
            fault.words[index + offset] = word

    def _take_kernel(self, record: TilingRecord, name: str, extra: str | None, *, cut: bool) -> None:
        kernel = read_kernel_name(name)
        compiled = read_kernel_name(extra) if extra and extra.startswith("te_") else None
        record.kernel_name = name
        if not cut:  # a name at the end of a cut line may have lost digits of its key
            record.take_key(kernel.tiling_key, "kernel_name")
        record.op_type = record.op_type or (compiled and compiled.op_type) or kernel.op_type
        record.op_name = record.op_name or kernel.node

    def _keep(self, fault: _Fault) -> _Fault:
        """Store under its task, merged into what is known of this task already."""
        task = (fault.record.stream_id or 0, fault.record.task_id or 0)
        known = self._tasks.get(task)
        if known is not None and known is not fault:
            flips = {known.record.flip_num, fault.record.flip_num} - {None}
            if len(flips) < 2:
                _absorb(known, fault)
                return known
            self._finish(known)
        self._tasks[task] = fault
        if len(self._tasks) > _TASK_LIMIT:
            self._finish(self._tasks.popitem(last=False)[1])
        return fault

    def _finish(self, fault: _Fault) -> None:
        record = fault.record
        record.fields |= tiling_fields(
            record.op_type, fault.words, fault.base, fault.tiling_bytes, fault.hex_data
        )
        if (low := record.fields.get("tiling_key_u32")) and record.tiling_key is None:
            record.take_key(low, SOURCE)
        self._sink(record)


def _read_block_line(fault: _Fault, line: LogLine) -> None:
    record = fault.record
    if found := _TENSOR.search(line.text):
        record.input_shapes = [*(record.input_shapes or []), [int(n) for n in _DIMENSION.findall(found[1])]]
        record.input_formats = [*(record.input_formats or []), found[2]]
        record.input_dtypes = [*(record.input_dtypes or []), found[3]]
    elif (found := _SIMPLE.search(line.text)) and (value := found[2].strip()):
        name = found[1]
        if name == "block_dim" and _NUMBER.fullmatch(value):
            record.take_block(int(value), SOURCE)
        elif name == "tiling_key" and _KEY_DIGITS.fullmatch(value):
            if line.module == "GE":  # printed with %u: only the low 32 bits
                record.fields["tiling_key_u32"] = value
            else:
                record.take_key(value, SOURCE)
        elif name == "dev_func":
            record.kernel_name = record.kernel_name or value
        elif name == "tiling_data":
            fault.hex_data = bytes_of_hex(value, cut=line.cut)
        elif name == "workspace" and (size := _WORKSPACE.search(value)):
            record.workspace_bytes = (record.workspace_bytes or 0) + int(size[1])


def _absorb(known: _Fault, later: _Fault) -> None:
    into, record = known.record, later.record
    into.take_key(record.tiling_key, record.key_source or SOURCE)
    into.take_block(record.block_dim, SOURCE)
    for name in (*_ABSORBED, "input_shapes", "input_dtypes", "input_formats"):
        if getattr(into, name) is None:
            setattr(into, name, getattr(record, name))
    if record.kernel_name:
        into.kernel_name = record.kernel_name
    into.fields = {**record.fields, **into.fields}
    for note in record.key_contradictions or ():
        if note not in (into.key_contradictions or ()):
            into.key_contradictions = [*(into.key_contradictions or ()), note]
    known.named, known.keyed = known.named or later.named, known.keyed or later.keyed
    known.words = known.words or later.words
    known.base = known.base or later.base
    known.tiling_bytes = known.tiling_bytes or later.tiling_bytes
    known.hex_data = known.hex_data or later.hex_data
