"""The lines of opbase and of the runtime about one launch, each read into the launch it belongs to.

Levels and wordings are those of CANN 8.5.0–9.2 (``blockDim`` and ``numBlocks`` both occur). Cached launches
print no key: it is recovered through the function handle.
"""

from __future__ import annotations

import re

from tilewatch.tasks.read.kernels.kernel_name import read_kernel_name, read_op_name
from tilewatch.tasks.read.plog.call_join import HELPER_OP, LaunchJoin
from tilewatch.tasks.read.plog.lines import KEY, NUMBER, LogLine
from tilewatch.tasks.read.plog.op_lines import read_op_line
from tilewatch.tasks.read.plog.tiling_record import TilingRecord, start_record

_TILING_KEY = re.compile(
    rf"Tiling Key: {KEY}, len: {NUMBER}, (?:BlockDim|numBlocks): {NUMBER}(?P<op>, Workspace Num: \d+)?"
)
_ENGINE = re.compile(
    rf"Launch kernel engine type: \d+, (?:blockDim|numBlocks): {NUMBER}, scheduleMode: {NUMBER}, "
    r"blockDimOffset: \d+, (?:localMemorySize|dynUBufSize): \d+, funcHandle: ([^,\s]+)"
)
_DYNAMIC = re.compile(
    rf"Launch dynamic kernel (.*?)(?: task)?,? tilingKey is {KEY}(?:, scheMode is {NUMBER})?, "
    rf"(?:blockDim|numBlocks) is {NUMBER}"
)
_OUTPUTS = re.compile(
    rf"Tiling outputs of (.+?) are \[tilingKey: {KEY}, (?:blockDim|numBlocks): {NUMBER}, scheMode: {NUMBER}"
)
_HANDLE = re.compile(rf"Get function handle by tiling key \[{KEY}\] successfully, function handle: ([^,\s]+)")
_SAVED = re.compile(rf"Save launch config to cache, .*?tilingKey: {KEY}, .*?funcHandle: ([^,\s]+)")
_KERNEL_INFO = re.compile(
    rf"kernel info ?: device_id={NUMBER}, stream_id={NUMBER},(?: task_id={NUMBER},)? "
    r"kernel(?:Attr)?Type=([^,]*), kernel_name=([^,]*), "
    rf"arg_size=\d+(?:, coreDim={NUMBER})?(?:, taskRation={NUMBER})?"
)
_CORES = re.compile(rf"aic num: {NUMBER}, aiv num: {NUMBER}(?:, deterministic level: {NUMBER})?")
_L2_WORKSPACE = re.compile(rf"Workspace addr: [^,]*, size: {NUMBER}")
_WORKSPACE = re.compile(rf"workspaceLen is {NUMBER}")
_ADUMP_KERNEL = re.compile(rf"block_dim: {NUMBER}, dev_func: ([^,]*), magic: [^,]*, tiling key: {KEY}")
_ADUMP_TASK = re.compile(
    rf"L2 = ([^,]*), L0 = ([^,]*), device_id = {NUMBER}, task_id = {NUMBER}, stream_id = {NUMBER}"
)
_PROFILED = re.compile(rf"tilingKey is \[{KEY}\], coreType is (-?\d+), taskRation is \[{NUMBER}\]")
_INPUT = re.compile(rf"input\[{NUMBER}\] Get StorageFormat ([^,]*), dataType ([^,]*), shape (.*?), addr is")


class LaunchLines:
    """Readers of the launch lines of one process.

    Every method takes the place of a line and the line, and returns False where the text is not the one that
    its marker stands for.
    """

    def __init__(self, launches: LaunchJoin) -> None:
        self._launches = launches
        self._inputs: dict[int | None, dict[int, tuple[str, str, list[int]]]] = {}
        self._dumped: dict[int | None, tuple[int, str, str]] = {}

    def op_line(self, file: str, number: int, line: LogLine, marker: str) -> bool:
        """A field line of an operator."""
        found = read_op_line(marker, line.text)
        if found is None:
            return False
        op_type = found.op_type or _named_type(line)
        self._launches.waiting.add_fields(
            file, number, line, op_type, found.fields, begins=found.begins, restates=found.restates
        )
        return True

    def dump(self, file: str, number: int, line: LogLine) -> bool:
        """The first chunk of a tiling-data dump."""
        return self._launches.waiting.start_dump(file, number, line, _named_type(line))

    def dump_chunk(self, file: str, number: int, line: LogLine) -> bool:
        """A further chunk of a dump."""
        return self._launches.waiting.add_chunk(line)

    def cores(self, file: str, number: int, line: LogLine) -> bool:
        """The core limits in force for a call."""
        found = _CORES.search(line.text)
        if found is None:
            return False
        if sequence := read_op_name(line.op_name or "").sequence:
            limits = {"aic_num": found[1], "aiv_num": found[2]}
            if found[3]:
                limits["deterministic_level"] = found[3]
            self._launches.limit_cores(line.tid, sequence, limits)
        return True

    def tiling_key(self, file: str, number: int, line: LogLine) -> bool:
        """The decision for a kernel of a composite call; without a workspace count it is the helper's."""
        found = _TILING_KEY.search(line.text)
        if found is None:
            return False
        record = self._launches.decide(file, number, line, None if found["op"] else HELPER_OP)
        record.take_key(found[1], "tiling_log")
        record.take_block(int(found[3]), "tiling_log")
        self._launches.attach_tiling(record, int(found[2]))
        return True

    def tiling_outputs(self, file: str, number: int, line: LogLine) -> bool:
        """The decision for a one-kernel call."""
        found = _OUTPUTS.search(line.text)
        if found is None:
            return False
        record = self._launches.decide(file, number, line, found[1])
        record.take_key(found[2], "tiling_log")
        record.take_block(int(found[3]), "tiling_log")
        record.schedule_mode = int(found[4])
        self._launches.attach_tiling(record)
        return True

    def engine_launch(self, file: str, number: int, line: LogLine) -> bool:
        """The launch of a kernel of a composite call, cached or not."""
        found = _ENGINE.search(line.text)
        if found is None:
            return False
        blocks, handle = int(found[1]), found[3]
        key_of_handle = self._launches.key_of_handle
        known = key_of_handle.get(handle)
        record = self._launches.take_decision(line.op_name, blocks)
        if record is None:
            record = self._launches.begin(file, number, line, None)
            if known:
                record.take_key(known, "launch_line")
                record.joined_by = "handle"
                if line.prefix.level == "INFO":  # cached launches are DEBUG, and tile nothing
                    self._launches.attach_tiling(record)
        record.take_key(known, "launch_line")
        record.take_block(blocks, "launch_line")
        record.schedule_mode = int(found[2])
        if record.tiling_key is not None:
            key_of_handle[handle] = record.tiling_key
        self._launch(record, line.tid)
        return True

    def dynamic_launch(self, file: str, number: int, line: LogLine) -> bool:
        """The launch of a one-kernel call; printed with and without a cache hit."""
        found = _DYNAMIC.search(line.text)
        if found is None:
            return False
        blocks = int(found[4])
        record = self._launches.take_decision(line.op_name, blocks)
        if record is None:
            record = self._launches.begin(file, number, line, found[1])
        record.take_key(found[2], "launch_line")
        record.take_block(blocks, "launch_line")
        if found[3]:
            record.schedule_mode = int(found[3])
        self._launch(record, line.tid)
        return True

    def handle(self, file: str, number: int, line: LogLine) -> bool:
        """The map from function handle to key, printed once a device and key, or with each cached config."""
        found = _HANDLE.search(line.text) or _SAVED.search(line.text)
        if found:
            self._launches.key_of_handle[found[2]] = found[1]
        return found is not None

    def workspace(self, file: str, number: int, line: LogLine) -> bool:
        """Workspace of a one-kernel call; that of a composite call spans its kernels and stays a field."""
        for record in self._launches.decisions(line.op_name):
            if found := _WORKSPACE.search(line.text):
                record.workspace_bytes = int(found[1])
            elif found := _L2_WORKSPACE.search(line.text):
                record.fields["call_workspace_bytes"] = found[1]
        return True

    def call_input(self, file: str, number: int, line: LogLine) -> bool:
        """One input of the call that this thread launches next."""
        found = _INPUT.search(line.text)
        if found is None:
            return False
        index, shape = int(found[1]), [int(n) for n in re.findall(r"-?\d{1,18}", found[4])]
        inputs = self._inputs.setdefault(line.tid, {})
        if index == 0:
            inputs.clear()
        inputs[index] = (found[2], found[3], shape)
        return True

    def kernel_info(self, file: str, number: int, line: LogLine) -> bool:
        """The runtime's launch line; alone it still has device, stream, task, blocks and the key by name."""
        found = _KERNEL_INFO.search(line.text)
        if found is None:
            return False
        kernel = read_kernel_name(found[5])
        blocks = int(found[6]) if found[6] else None
        record = self._launches.take_awaiting(line.tid, kernel, blocks)
        if record is None:
            record = start_record(file, number, line)
            record.joined_by = "line"
        record.op_type = record.op_type or kernel.op_type
        record.take_key(kernel.tiling_key, "kernel_name")
        record.take_block(blocks, "launch_line")
        record.device_id, record.stream_id = int(found[1]), int(found[2])
        record.task_id = int(found[3]) if found[3] else None
        record.kernel_name = found[5] or None
        record.fields["kernel_type"] = found[4]
        if found[7]:
            record.fields["task_ration"] = found[7]
        self._launches.finish(record)
        return True

    def exception_operator(self, file: str, number: int, line: LogLine) -> bool:
        """The direct join of a call with its stream and task, printed where exception dumps are on."""
        kernel, task = _ADUMP_KERNEL.search(line.text), _ADUMP_TASK.search(line.text)
        if kernel:
            self._dumped[line.tid] = (int(kernel[1]), kernel[2], kernel[3])
        if task is None:
            return kernel is not None
        full_name = f"{task[1]}_{task[2]}" if task[2] else task[1]
        awaiting = self._launches.awaiting(line.tid)
        record = next((r for r in awaiting if r.op_name in (full_name, task[1])), None)
        if record is None:
            record = start_record(file, number, line)
            record.joined_by = "task"
            self._launches.name(record, full_name)
            self._launches.launched(record, line.tid)
        record.device_id, record.task_id, record.stream_id = int(task[3]), int(task[4]), int(task[5])
        if dumped := self._dumped.pop(line.tid, None):
            record.take_block(dumped[0], "exception_dump")
            record.take_key(dumped[2], "exception_dump")
            record.kernel_name = dumped[1]
        return True

    def profiled(self, file: str, number: int, line: LogLine) -> bool:
        """Core kind and ratio, printed on the profiling path for the launch that follows."""
        found = _PROFILED.search(line.text)
        for record in self._launches.decisions(line.op_name) if found else ():
            if found and record.tiling_key == found[1]:
                record.fields |= {"core_type": found[2], "task_ration": found[3]}
        return found is not None

    def _launch(self, record: TilingRecord, tid: int | None) -> None:
        if inputs := self._inputs.pop(tid, None):
            ordered = [inputs[i] for i in sorted(inputs)]
            record.input_formats = [f for f, _, _ in ordered]
            record.input_dtypes = [d for _, d, _ in ordered]
            record.input_shapes = [s for _, _, s in ordered]
        self._launches.launched(record, tid)


def _named_type(line: LogLine) -> str | None:
    return read_op_name(line.op_name).op_type if line.op_name else None
