"""Tiling decisions in CANN host logs (plog), streamed: contract ``tilings``, refusals, and facts about the
logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from tilewatch.data_contracts import schema
from tilewatch.tasks.read.origin import Origin
from tilewatch.tasks.read.plog.lines import continue_line, parse_line
from tilewatch.tasks.read.plog.log_loss import file_time_loss
from tilewatch.tasks.read.plog.op_tiling import OpTiling
from tilewatch.tasks.read.plog.process import ANNOUNCES_TILING, MARKERS, PlogProcess
from tilewatch.tasks.read.plog.scan import BLOCK_BYTES, MarkerScanner, ScanCounts
from tilewatch.tasks.read.plog.tiling_record import TilingRecord, tilings_table
from tilewatch.tasks.read.quarantine import Refusal, refused_rows
from tilewatch.tasks.read.result import ReadResult

BATCH_ROWS = 1024
_FILE_PID = re.compile(r"(?:plog|device)-(\d+)_")


@dataclass(frozen=True)
class LogFile:
    """A log on disk and its name inside the capture (``source_file``, with ``/``)."""

    path: Path
    name: str


@dataclass
class PlogFacts:
    """Facts about the logs read so far; ``as_dict`` is what goes into ``ReadResult.facts``."""

    files: list[dict[str, Any]] = field(default_factory=list)
    records: dict[str, int] = field(default_factory=dict)
    without_tiling: int = 0
    unused_marked_lines: int = 0
    loss: dict[str, dict[str, int]] = field(default_factory=dict)
    core_limits: dict[str, dict[str, int]] = field(default_factory=dict)
    cann_versions: set[str] = field(default_factory=set)
    foreign_pids: dict[str, list[int]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """JSON-like values."""
        return {
            "files": [{**f, "records": self.records.get(f["file"], 0)} for f in self.files],
            "records": sum(self.records.values()),
            "launches_without_tiling": self.without_tiling,
            "unused_marked_lines": self.unused_marked_lines,
            "loss": self.loss,
            "file_times": file_time_loss((f["file"], f["size_bytes"]) for f in self.files),
            "core_limits": self.core_limits,
            "cann_versions": sorted(self.cann_versions),
            "foreign_pids": self.foreign_pids,
        }


def read_plog(
    files: Iterable[LogFile], origin: Origin, *, cann_version: str | None = None, census: bool = False
) -> ReadResult:
    """Read logs of one host whole. ``census`` also counts headers and refuses what only looks like one."""
    reader = PlogReader(origin, cann_version=cann_version, census=census)
    tables = list(reader.batches(files))
    table = pa.concat_tables(tables) if tables else tilings_table(origin, [])
    return ReadResult(table, reader.quarantine(), reader.facts.as_dict())


class PlogReader:
    """Reads logs in batches of rows, so that memory does not grow with the logs.

    ``facts`` and ``quarantine()`` are complete when ``batches`` is exhausted. ``cann_version`` is the version
    whose layouts decode tiling data, None where it is not known.
    """

    def __init__(
        self,
        origin: Origin,
        *,
        cann_version: str | None = None,
        census: bool = False,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._origin = origin
        self._cann_version = cann_version
        self._census = census
        self._scanner = MarkerScanner(MARKERS, block_bytes=block_bytes)
        self._records: list[TilingRecord] = []
        self._refusals: list[Refusal] = []
        self.facts = PlogFacts()

    def batches(self, files: Iterable[LogFile]) -> Iterator[pa.Table]:
        """Tables of contract ``tilings``. Files of one folder and pid are one log, in the order of their
        names.
        """
        ordered = sorted(files, key=lambda f: (str(PurePosixPath(f.name).parent), f.name))
        for folder, group in groupby(ordered, key=lambda f: str(PurePosixPath(f.name).parent)):
            processes: dict[int, PlogProcess] = {}
            for file in group:
                yield from self._read(file, processes)
            for pid, process in processes.items():
                self._close(folder, pid, process)
        yield from self._flush(1)

    def quarantine(self) -> pa.Table:
        """Refused lines, contract ``quarantine``."""
        if not self._refusals:
            return schema("quarantine").empty_table()
        return refused_rows(self._origin, "tilings", self._refusals)

    def _read(self, file: LogFile, processes: dict[int, PlogProcess]) -> Iterator[pa.Table]:
        counts = ScanCounts()
        try:
            with file.path.open("rb", buffering=0) as stream:
                for marked in self._scanner.scan(stream, counts, census=self._census):
                    if marked.unterminated:
                        self._refuse(file.name, marked.number, "unterminated_line", marked.raw)
                        continue
                    line = parse_line(marked.header, marked.match)
                    if line is None:
                        if ANNOUNCES_TILING[marked.marker]:
                            self._refuse(file.name, marked.number, "no_header", marked.raw)
                        continue
                    if marked.continuation is not None:
                        line = continue_line(line, marked.continuation)
                    process = processes.get(line.pid) or self._open(file.name, line.pid, processes)
                    if not process.take(file.name, marked.number, line, marked.marker):
                        self.facts.unused_marked_lines += 1
                        if ANNOUNCES_TILING[marked.marker]:
                            self._refuse(file.name, marked.number, "unreadable_tiling_line", marked.raw)
                    if len(self._records) >= BATCH_ROWS:
                        yield from self._flush(BATCH_ROWS)
        except OSError as error:
            self._refusals.append(Refusal(file.name, None, "unreadable_file", str(error)))
        self._count(file, counts)

    def _open(self, file: str, pid: int, processes: dict[int, PlogProcess]) -> PlogProcess:
        named = _FILE_PID.search(file)
        if named and int(named[1]) != pid:
            pids = self.facts.foreign_pids.setdefault(file, [])
            if pid not in pids:
                pids.append(pid)
        process = PlogProcess(self._take_record)
        for parent in processes.values():
            process.adopt(parent, pid)
        processes[pid] = process
        return process

    def _take_record(self, record: TilingRecord) -> None:
        self._records.append(record)
        self.facts.records[record.source_file] = self.facts.records.get(record.source_file, 0) + 1

    def _flush(self, at_least: int) -> Iterator[pa.Table]:
        if len(self._records) >= at_least:
            yield tilings_table(self._origin, self._records, self._cann_version)
            self._records = []

    def _close(self, folder: str, pid: int, process: PlogProcess) -> None:
        for tiling in process.finish():
            self._refuse_incomplete(tiling)
        self.facts.without_tiling += process.without_tiling
        self.facts.loss[f"{folder}:{pid}" if folder != "." else str(pid)] = process.loss.numbers()
        self.facts.core_limits |= process.core_limits
        self.facts.cann_versions |= process.cann_versions

    def _count(self, file: LogFile, counts: ScanCounts) -> None:
        for number, raw in counts.unclassified:
            self._refuse(file.name, number, "unclassified_header", raw)
        if counts.dropped_bytes:
            self._refuse(file.name, counts.lines, "overlong_line", b"")
        entry = {
            "file": file.name,
            "size_bytes": counts.size_bytes,
            "lines": counts.lines,
            "marked_lines": counts.marked_lines,
            "continued_lines": counts.continued_lines,
            "orphan_lines": counts.orphan_lines,
            "dropped_bytes": counts.dropped_bytes,
        }
        if self._census:
            entry |= {"header_lines": counts.header_lines, "unclassified_lines": len(counts.unclassified)}
        self.facts.files.append(entry)

    def _refuse(self, file: str, number: int, rule: str, raw: bytes) -> None:
        text = raw.decode("utf-8", "replace")
        self._refusals.append(Refusal(file, number, rule, _REASONS[rule], raw_text=text))

    def _refuse_incomplete(self, tiling: OpTiling) -> None:
        expected = (tiling.size_bytes or 0) // 4
        self._refusals.append(
            Refusal(
                tiling.source_file,
                tiling.source_line,
                "incomplete_dump",
                f"tiling data has {len(tiling.words)} of {expected} words; the record keeps them undecoded",
                field="tiling_data",
                value=",".join(map(str, tiling.words)),
            )
        )


_REASONS = {
    "no_header": "no line before it says which process and thread wrote it",
    "overlong_line": "a line without an end; what is beyond a megabyte was dropped",
    "unterminated_line": "the file ends inside this line, so its last number may lack digits",
    "unreadable_tiling_line": "the line announces a tiling fact, but its fields cannot be read",
    "unclassified_header": "the line begins like a log line, but does not follow the line grammar",
}
