"""All readers of one process's log lines, and which marker text goes to which of them."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from tilewatch.tasks.read.kernels.kernel_name import read_op_name
from tilewatch.tasks.read.plog.call_join import LaunchJoin
from tilewatch.tasks.read.plog.exception_dump import ExceptionDumps
from tilewatch.tasks.read.plog.graph_engine_lines import GraphLaunches
from tilewatch.tasks.read.plog.lines import LogLine
from tilewatch.tasks.read.plog.log_loss import LossCounter
from tilewatch.tasks.read.plog.op_lines import OP_LINE_MARKERS
from tilewatch.tasks.read.plog.op_tiling import OpTiling
from tilewatch.tasks.read.plog.opbase_lines import LaunchLines
from tilewatch.tasks.read.plog.tiling_record import TilingRecord

Handler = Callable[[str, int, LogLine], bool]

# Marker → reader and method. The order decides which marker of a line wins. ``True``: the text announces a
# tiling fact, so a line that cannot be read is refused rather than passed over.
_ROUTES: tuple[tuple[str, str, str, bool], ...] = (
    ("Start to dump tiling info. tilingkey:", "launch", "dump", True),
    ("[DumpTilingInfo]", "launch", "dump_chunk", True),
    ("Tiling outputs of ", "launch", "tiling_outputs", True),
    ("Launch kernel engine type: ", "launch", "engine_launch", True),
    ("Launch dynamic kernel ", "launch", "dynamic_launch", True),
    ("Save launch config to cache", "launch", "handle", False),
    ("Get function handle by tiling key [", "launch", "handle", True),
    ("AdumpAddExceptionOperatorInfo", "launch", "exception_operator", False),
    ("Tiling Key: ", "launch", "tiling_key", True),
    ("kernel info : ", "launch", "kernel_info", True),
    ("fault kernel_name=", "exception", "fault_name", True),
    ("tilingKey = ", "exception", "fault_key", True),
    ("[AIC_INFO]", "exception", "block_line", False),
    ("para base: ", "exception", "parameters", False),
    ("[Dump][Exception] ", "exception", "dump_size", False),
    ("LaunchKernel: stream_id=", "graph", "runtime_launch", False),
    ("KernelTaskEventLogProc:", "graph", "event", False),
    ("[KernelTrace][LaunchKernelWithFlag_", "graph", "trace", False),
    ("]node_type[", "graph", "node_type", False),
    ("KernelTaskInfo Distribute ", "graph", "distribute", False),
    ("kernel name is ", "graph", "kernel", False),
    ("UpdateTaskId [", "graph", "update_task", False),
    ("aic num: ", "launch", "cores", False),
    ("Workspace addr: ", "launch", "workspace", False),
    ("workspaceLen is", "launch", "workspace", False),
    ("[PrintIo]Op ", "launch", "call_input", False),
    ("tilingKey is [", "launch", "profiled", False),
    ("task_finish_num=", "process", "finished_tasks", False),
    ("Change ge.", "process", "core_limit", False),
    ("[CANN_VERSION : ", "process", "cann_version", False),
)
MARKERS = tuple(marker for marker, *_ in _ROUTES) + OP_LINE_MARKERS
ANNOUNCES_TILING = tuple(strong for *_, strong in _ROUTES) + (False,) * len(OP_LINE_MARKERS)

_FINISHED = re.compile(r"task_finish_num=(\d{1,18})")
_LAUNCHED = re.compile(r"task_launched_num=(\d{1,18})")
_CORE_LIMIT = re.compile(r"Change ge\.(\w+) from platform (\d{1,18}) to rts (\d{1,18})")
_CANN = re.compile(r"\[CANN_VERSION : ([^\]]+)\]")
_RECENT_LIMIT = 8192


class _Launch(NamedTuple):
    """What a failed kernel is compared with: the launch of the same stream and task."""

    tiling_key: str | None
    key_source: str | None
    block_dim: int | None
    flip_num: int | None


class PlogProcess:
    """The log of one process (pid), possibly over several rotated files.

    ``sink`` receives finished records; launches that carry no tiling fact are only counted.
    """

    def __init__(self, sink: Callable[[TilingRecord], None]) -> None:
        self._sink = sink
        self.loss = LossCounter()
        self.without_tiling = 0
        self._last_op = ""
        self.core_limits: dict[str, dict[str, int]] = {}
        self.cann_versions: set[str] = set()
        self._recent: OrderedDict[tuple[int, int], _Launch] = OrderedDict()
        self._launches = LaunchJoin(self._launch)
        self._exceptions = ExceptionDumps(self._exception)
        self._graph = GraphLaunches(self._launch)
        self._lines = LaunchLines(self._launches)
        owners = {
            "launch": self._lines, "exception": self._exceptions, "graph": self._graph, "process": self
        }  # fmt: skip
        self._handlers: list[Handler] = [getattr(owners[owner], name) for _, owner, name, _ in _ROUTES]

    def adopt(self, parent: PlogProcess, tid: int) -> None:
        """Take over what ``parent`` holds of thread ``tid``.

        A forked child's first line still carries its parent's pid, but the child's thread id.
        """
        self._launches.waiting.adopt(parent._launches.waiting, tid)

    def take(self, file: str, number: int, line: LogLine, marker: int) -> bool:
        """Read one marked line; False where its text is not what the marker stands for."""
        if line.op_name and line.op_name != self._last_op:
            self._last_op = line.op_name
            if sequence := read_op_name(line.op_name).sequence:
                self.loss.sequence(int(sequence))
        if marker < len(self._handlers):
            return self._handlers[marker](file, number, line)
        return self._lines.op_line(file, number, line, MARKERS[marker])

    def finished_tasks(self, file: str, number: int, line: LogLine) -> bool:
        """The runtime's running count of finished tasks."""
        if found := _FINISHED.search(line.text):
            self.loss.counter("task_finish_num", int(found[1]))
        return found is not None

    def core_limit(self, file: str, number: int, line: LogLine) -> bool:
        """Core counts that a graph is limited to."""
        if found := _CORE_LIMIT.search(line.text):
            self.core_limits[found[1]] = {"platform": int(found[2]), "rts": int(found[3])}
        return found is not None

    def cann_version(self, file: str, number: int, line: LogLine) -> bool:
        """A CANN version that a line of the device names."""
        if found := _CANN.search(line.text):
            self.cann_versions.add(found[1])
        return found is not None

    def finish(self) -> list[OpTiling]:
        """Hand out all that still waits; returns the dumps that lack words."""
        self._launches.finish_all()
        self._graph.finish_all()
        self._exceptions.finish_all()
        return self._launches.incomplete

    def _launch(self, record: TilingRecord) -> None:
        if record.stream_id is not None and record.task_id is not None:
            self.loss.task(record.device_id, record.stream_id, record.task_id)
            self._recent[record.stream_id, record.task_id] = _Launch(
                record.tiling_key, record.key_source, record.block_dim, record.flip_num
            )
            if len(self._recent) > _RECENT_LIMIT:
                self._recent.popitem(last=False)
        self._store(record)

    def _exception(self, record: TilingRecord) -> None:
        launch = self._recent.get((record.stream_id or 0, record.task_id or 0))
        same_flip = launch is not None and None in (launch.flip_num, record.flip_num)
        if launch is not None and (same_flip or launch.flip_num == record.flip_num):
            record.take_key(launch.tiling_key, launch.key_source or "launch_line")
            record.take_block(launch.block_dim, "launch_line")
        self._store(record)

    def _store(self, record: TilingRecord) -> None:
        if record.says_something:
            self._sink(record)
        else:
            self.without_tiling += 1
