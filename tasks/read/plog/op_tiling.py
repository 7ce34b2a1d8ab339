"""What operators print while they are tiled: dumps of tiling data, and field lines of single operators.

A dump is ``Start to dump tiling info. tilingkey:<k>, tiling data size:<bytes>, content:<u32>,<u32>,…``; it is
split after 640 characters, and the further chunks are bare number lists of the same thread, function and
operator. These lines carry no sequence number, so they wait here until a launch claims them.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import TypeVar

from tilewatch.tasks.read.plog.lines import LogLine
from tilewatch.tasks.read.plog.tiling_layouts import DecodedFields, decode_words

_START = re.compile(
    r"Start to dump tiling info\. tilingkey:(\d{1,20}), tiling data size:(\d{1,9}), content:([\d,]*)$"
)
_CHUNK = re.compile(r"[\d,]*\d[\d,]*$")
_UINT32_MAX = (1 << 32) - 1
_WORD_DIGITS = 10
WAITING_LIMIT = 4096
SEARCH_LIMIT = 64

_K = TypeVar("_K")


@dataclass(slots=True)
class OpTiling:
    """One tiling as its operator printed it. ``size_bytes`` is None where no dump was printed."""

    source_file: str
    source_line: int
    pid: int
    tid: int | None
    logged_ns: int
    op_type: str | None
    op_name: str | None
    sequence: str | None = None
    tiling_key: str | None = None
    size_bytes: int | None = None
    words: tuple[int, ...] = ()
    fields: dict[str, str] = field(default_factory=dict)
    claimed: bool = False

    @property
    def complete(self) -> bool:
        """True where all words of the dump are there (or there was none)."""
        return self.size_bytes is None or 4 * len(self.words) == self.size_bytes

    def fits(self, sequence: str | None, op_type: str | None, key: str, size_bytes: int | None) -> bool:
        """True where this may be the tiling of a launch; None stands for what is not known."""
        if self.claimed or (self.tiling_key or key) != key:
            return False
        if self.op_type != op_type and (self.tiling_key is None or None not in (op_type, self.op_type)):
            return False
        return (self.sequence is None or sequence is None or self.sequence == sequence) and (
            self.size_bytes is None or size_bytes is None or self.size_bytes == size_bytes
        )

    def read_data(self) -> DecodedFields | None:
        """The tiling data by name; None where it is not whole or has no known layout."""
        whole = self.size_bytes is not None and self.complete
        return decode_words(self.op_type or "", self.words) if whole else None

    def raw_data(self) -> dict[str, str]:
        """The tiling data as words, for where it cannot be read."""
        if self.size_bytes is None:
            return {}
        return {"tiling_data": ",".join(map(str, self.words)), "tiling_data_bytes": str(self.size_bytes)}


class WaitingTilings:
    """Tilings of one process that no launch has claimed yet.

    Most are claimed at once by their own thread, so the other indexes are filled only when they are asked.
    """

    def __init__(self) -> None:
        self._by_thread: dict[int | None, deque[OpTiling]] = {}
        self._fresh: list[OpTiling] = []
        self._by_sequence: dict[str, deque[OpTiling]] = {}
        self._by_type: dict[str | None, deque[OpTiling]] = {}
        self._all: deque[OpTiling] = deque()
        self._sequence: dict[int | None, str] = {}

    def enter_sequence(self, tid: int | None, sequence: str) -> None:
        """The thread now tiles for this call; tilings it prints from here on belong to it."""
        self._sequence[tid] = sequence

    def start_dump(self, source_file: str, number: int, line: LogLine, op_type: str | None) -> bool:
        """Take the first chunk of a dump; False where the line is not one."""
        found = _START.search(line.text)
        if found is None or (words := _words(found[3], line.cut)) is None:
            return False
        tiling = self._last(line.tid)
        if tiling is None or tiling.size_bytes is not None or tiling.op_type != op_type or tiling.claimed:
            tiling = self._add(source_file, number, line, op_type)
        tiling.tiling_key, tiling.size_bytes = found[1], int(found[2])
        tiling.words = words
        return True

    def add_chunk(self, line: LogLine) -> bool:
        """Append a further chunk; False where no open dump of this thread and operator takes it."""
        tiling = self._last(line.tid)
        if tiling is None or tiling.complete or tiling.op_name != line.op_name:
            return False
        if not _CHUNK.match(line.text) or (words := _words(line.text, line.cut)) is None:
            return False
        missing = (tiling.size_bytes or 0) // 4 - len(tiling.words)
        tiling.words += words[: max(missing, 0)]
        return True

    def add_fields(
        self,
        source_file: str,
        number: int,
        line: LogLine,
        op_type: str | None,
        fields: dict[str, str],
        *,
        begins: bool = False,
        restates: bool = False,
    ) -> None:
        """Take fields of a line. ``begins``: the line opens a tiling; ``restates``: it may repeat fields."""
        tiling = self._last(line.tid)
        repeats = tiling is not None and any(
            name in tiling.fields and not (restates and tiling.fields[name] == value)
            for name, value in fields.items()
        )
        other = tiling is None or tiling.size_bytes is not None or tiling.claimed or tiling.op_type != op_type
        if tiling is None or begins or repeats or other:
            tiling = self._add(source_file, number, line, op_type)
        tiling.fields.update(fields)

    def claim(
        self, tid: int | None, sequence: str | None, op_type: str | None, key: str, size_bytes: int | None
    ) -> tuple[OpTiling, str] | None:
        """The tiling of a launch and how it was found: its thread, its sequence number, or launch order."""

        own = self._by_thread.get(tid)
        if own and own[-1].fits(sequence, op_type, key, size_bytes):
            return self._claimed(own[-1]), "thread"
        self._file_fresh()
        in_sequence = self._by_sequence.get(sequence or "", ())
        for how, waiting in (
            ("thread", islice(reversed(self._by_thread.get(tid, ())), SEARCH_LIMIT)),
            ("sequence", iter(in_sequence)),
            ("order", islice(self._by_type.get(op_type, ()), SEARCH_LIMIT)),
        ):
            found = next((t for t in waiting if t.fits(sequence, op_type, key, size_bytes)), None)
            if found is not None:
                return self._claimed(found), how
        return None

    def adopt(self, other: WaitingTilings, tid: int) -> None:
        """Take over the unclaimed tilings of thread ``tid`` from another process."""
        for tiling in list(other._by_thread.get(tid, ())):
            if not tiling.claimed:
                self._take(replace(tiling))
                other._claimed(tiling)

    def evict(self, *, everything: bool = False) -> list[OpTiling]:
        """Unclaimed tilings beyond the limit (all of them with ``everything``), oldest first."""
        if not everything and len(self._fresh) + len(self._all) <= WAITING_LIMIT:
            return []
        self._file_fresh()
        evicted = []
        while self._all and (everything or len(self._all) > WAITING_LIMIT or self._all[0].claimed):
            tiling = self._all.popleft()
            if not tiling.claimed:
                evicted.append(self._claimed(tiling))
        return evicted

    def _last(self, tid: int | None) -> OpTiling | None:
        queue = self._by_thread.get(tid)
        return queue[-1] if queue else None

    def _add(self, source_file: str, number: int, line: LogLine, op_type: str | None) -> OpTiling:
        tiling = OpTiling(
            source_file, number, line.pid, line.tid, line.logged_ns, op_type, line.op_name,
            self._sequence.get(line.tid),
        )  # fmt: skip
        self._take(tiling)
        return tiling

    def _take(self, tiling: OpTiling) -> None:
        self._by_thread.setdefault(tiling.tid, deque()).append(tiling)
        self._fresh.append(tiling)
        if len(self._fresh) >= SEARCH_LIMIT:
            self._file_fresh()

    def _file_fresh(self) -> None:
        """Put what is not claimed yet where it is found by sequence number, by operator, and by age."""
        open_tilings = [tiling for tiling in self._fresh if not tiling.claimed]
        self._fresh.clear()
        for tiling in open_tilings:
            if tiling.sequence is not None:
                self._by_sequence.setdefault(tiling.sequence, deque()).append(tiling)
            self._by_type.setdefault(tiling.op_type, deque()).append(tiling)
            self._all.append(tiling)

    def _claimed(self, tiling: OpTiling) -> OpTiling:
        tiling.claimed = True
        self._drop_claimed(tiling)
        return tiling

    def _drop_claimed(self, tiling: OpTiling) -> None:
        _prune(self._by_thread, tiling.tid)
        if tiling.sequence is not None:
            _prune(self._by_sequence, tiling.sequence)
        _prune(self._by_type, tiling.op_type)


def _prune(index: dict[_K, deque[OpTiling]], key: _K) -> None:
    queue = index.get(key)
    if queue is None:
        return
    while queue and queue[0].claimed:
        queue.popleft()
    if not queue:
        del index[key]


@lru_cache(maxsize=1024)
def _words(text: str, cut: bool) -> tuple[int, ...] | None:
    tokens = [token for token in text.split(",") if token]
    if cut and tokens and not text.endswith(","):
        tokens.pop()  # the logger may have cut inside the last number
    if any(len(token) > _WORD_DIGITS for token in tokens):
        return None
    words = tuple(map(int, tokens))
    return None if words and max(words) > _UINT32_MAX else words
