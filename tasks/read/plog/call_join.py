"""Puts the lines of one launch together: decision, the operator's own tiling, launch, runtime line.

opbase's lines share the sequence number in ``OpName:[…]``; the runtime's line follows the launch on the same
thread; what the operator printed while it was tiled is claimed by thread, sequence number or launch order.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping

from tilewatch.tasks.read.kernels.kernel_name import KernelName, read_op_name
from tilewatch.tasks.read.plog.lines import LogLine
from tilewatch.tasks.read.plog.op_tiling import OpTiling, WaitingTilings
from tilewatch.tasks.read.plog.tiling_keys import read_tiling_key
from tilewatch.tasks.read.plog.tiling_record import TilingRecord, start_record

Sink = Callable[[TilingRecord], None]

OPEN_LIMIT = 4096
AWAITING_LIMIT = 4
HELPER_OP = "MemSet"


class LaunchJoin:
    """Launches of one process (pid) while their lines come in. Finished records go to ``sink``.

    ``waiting`` holds tilings that no launch has claimed, ``key_of_handle`` the keys of cached launches.
    ``incomplete`` collects dumps that still lacked words when their record was finished.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.waiting = WaitingTilings()
        self.key_of_handle: dict[str, str] = {}
        self.cores_of_sequence: dict[str, dict[str, str]] = {}
        self.incomplete: list[OpTiling] = []
        self._open: OrderedDict[str, list[TilingRecord]] = OrderedDict()
        self._awaiting: dict[int | None, deque[TilingRecord]] = {}

    def begin(self, file: str, number: int, line: LogLine, op_type: str | None) -> TilingRecord:
        """A record that starts at an opbase line."""
        record = start_record(file, number, line)
        record.joined_by = "line"
        self.name(record, line.op_name, op_type)
        if record.op_sequence:
            record.fields |= self.cores_of_sequence.get(record.op_sequence, {})
        return record

    def name(self, record: TilingRecord, op_name: str | None, op_type: str | None = None) -> None:
        """Set operator name, sequence number and type from ``OpName:[…]``."""
        name = read_op_name(op_name or "")
        record.op_name, record.op_sequence = op_name, name.sequence
        record.op_type = op_type or name.op_type

    def decide(self, file: str, number: int, line: LogLine, op_type: str | None) -> TilingRecord:
        """Begin a record that waits for its launch."""
        record = self.begin(file, number, line, op_type)
        self._open.setdefault(record.op_name or "", []).append(record)
        if len(self._open) > OPEN_LIMIT:
            for stale in self._open.popitem(last=False)[1]:
                self.finish(stale)
        return record

    def decisions(self, op_name: str | None) -> list[TilingRecord]:
        """Decisions of ``op_name`` that have not been launched."""
        return self._open.get(op_name or "", [])

    def take_decision(self, op_name: str | None, blocks: int) -> TilingRecord | None:
        """The decision that a launch carries out; of several, the one with the same blocks."""
        records = self._open.get(op_name or "")
        if not records:
            return None
        record = next((r for r in records if r.block_dim == blocks), records[-1])
        records.remove(record)
        if not records:
            del self._open[op_name or ""]
        return record

    def attach_tiling(self, record: TilingRecord, size_bytes: int | None = None) -> None:
        """Claim what the operator printed while it was tiled; ``size_bytes`` of tiling data, where known."""
        if record.op_type == HELPER_OP or record.tiling_key is None:
            return
        claimed = self.waiting.claim(
            record.tid, record.op_sequence, record.op_type, record.tiling_key, size_bytes
        )
        if claimed:
            tiling, record.joined_by = claimed
            self._merge(record, tiling)
        self._release_waiting()

    def launched(self, record: TilingRecord, tid: int | None) -> None:
        """The launch has been logged; its runtime line is still to come on this thread."""
        queue = self._awaiting.setdefault(tid, deque())
        queue.append(record)
        if len(queue) > AWAITING_LIMIT:
            self.finish(queue.popleft())

    def awaiting(self, tid: int | None) -> list[TilingRecord]:
        """Launches of this thread without a runtime line, oldest first."""
        return list(self._awaiting.get(tid, ()))

    def take_awaiting(self, tid: int | None, kernel: KernelName, blocks: int | None) -> TilingRecord | None:
        """The launch that a runtime line belongs to: same operator type, or same key and blocks."""
        queue = self._awaiting.get(tid)
        if not queue:
            return None
        first = queue[0]
        if len(queue) == 1 and first.op_type == kernel.op_type and first.block_dim == blocks:
            return queue.popleft()
        same_type = [r for r in queue if r.op_type == kernel.op_type or None in (r.op_type, kernel.op_type)]
        same_key = [r for r in queue if kernel.tiling_key and r.tiling_key == kernel.tiling_key]
        candidates = same_type or [r for r in same_key if r.block_dim == blocks]
        record = next((r for r in candidates if blocks in (None, r.block_dim)), None)
        if record is None and candidates:
            record = candidates[-1]
        if record is not None:
            queue.remove(record)
        return record

    def limit_cores(self, tid: int | None, sequence: str, limits: Mapping[str, str]) -> None:
        """Core limits of a call; its tiling follows on this thread."""
        self.waiting.enter_sequence(tid, sequence)
        self.cores_of_sequence[sequence] = dict(limits)
        if len(self.cores_of_sequence) > OPEN_LIMIT:
            del self.cores_of_sequence[next(iter(self.cores_of_sequence))]

    def finish(self, record: TilingRecord) -> None:
        """Hand out a record with the columns that follow from its key."""
        if record.op_type and record.tiling_key:
            facts = read_tiling_key(record.op_type, record.tiling_key)
            record.ub_template, record.aiv_aic_ratio = facts.ub_template, facts.aiv_aic_ratio
        if record.fields.get("streamK") == "1":
            record.stream_k = True
        self._sink(record)

    def finish_all(self) -> None:
        """Hand out all that still waits: launches without a runtime line, decisions, unclaimed tilings."""
        for queue in self._awaiting.values():
            while queue:
                self.finish(queue.popleft())
        for records in self._open.values():
            for record in records:
                self.finish(record)
        self._open.clear()
        self._release_waiting(everything=True)

    def _merge(self, record: TilingRecord, tiling: OpTiling) -> None:
        record.op_type = record.op_type or tiling.op_type
        record.decoded = tiling.read_data()
        raw = {} if record.decoded else tiling.raw_data()
        record.fields = {**tiling.fields, **raw, **record.fields}
        if not tiling.complete:
            self.incomplete.append(tiling)
        if record.decoded and record.tiling_key and record.op_type:
            facts = read_tiling_key(record.op_type, record.tiling_key, tiling.size_bytes)
            record.stream_k = facts.stream_k

    def _release_waiting(self, *, everything: bool = False) -> None:
        for tiling in self.waiting.evict(everything=everything):
            record = TilingRecord(
                tiling.source_file, tiling.source_line, tiling.pid, tiling.tid, tiling.logged_ns
            )
            record.op_type, record.op_name, record.joined_by = tiling.op_type, tiling.op_name, "line"
            record.op_sequence = tiling.sequence
            record.take_key(tiling.tiling_key, "op_dump")
            self._merge(record, tiling)
            self.finish(record)
