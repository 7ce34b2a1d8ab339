"""What the profiler said twice must agree: checks that need no reference but the files themselves.

A failed check names rows and stops nothing. All are rows of contract ``checks``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tilewatch.data_contracts import from_rows
from tilewatch.tasks.read.origin import Origin

TOTAL_TOLERANCE_NS = 10
"""op_statistic writes totals to 0.01 µs."""
STEP_TOLERANCE_NS = 10
"""step_trace_time is a sum of doubles; besides, every interval in it may be off by the last digit, 1 ns."""

_COLLECTIVES = ("COMMUNICATION", "HCCL")
_SHOWN = 5


@dataclass(frozen=True)
class Check:
    """Result of one self-check on one file: rows looked at, rows that fail it, the first or sums in words."""

    file: str
    rule: str
    row_count: int
    failed_count: int
    failures: list[str]
    severity: str = "error"

    @property
    def detail(self) -> str:
        """The first failures in words."""
        more = self.failed_count - _SHOWN if len(self.failures) >= _SHOWN else 0
        return "; ".join(self.failures[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def check_rows(origin: Origin, checks: Iterable[Check]) -> pa.Table:
    """Contract ``checks``; the id is a hash of capture, file and rule, so that a repeat adds nothing."""
    rows = [
        {
            "check_id": _check_id(origin, c),
            "capture_id": origin.capture_id,
            "run_id": origin.run_id,
            "build": origin.build,
            "table": c.file,
            "rule": c.rule,
            "expectation": "self_check",
            "severity": c.severity,
            "success": c.failed_count == 0,
            "row_count": c.row_count,
            "failed_count": c.failed_count,
            "detail": c.detail or None,
        }
        for c in checks
    ]
    return from_rows("checks", rows)


def _check_id(origin: Origin, check: Check) -> str:
    identity = "\x1f".join((origin.capture_id, check.file, check.rule))
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def statistic_equals_kernels(file: str, operators: pa.Table, kernels: pa.Table) -> Check:
    """op_statistic is the aggregate of the kernel rows by operator type and core: count and total time.

    Communication is in the kernel rows and not in op_statistic.
    """
    keys = ["op_type", "task_type"]
    kernels = kernels.filter(pc.invert(_communication(kernels)))
    counted = kernels.group_by(keys).aggregate([("duration_ns", "count"), ("duration_ns", "sum")])
    said = operators.group_by(keys).aggregate([("count", "sum"), ("total_ns", "sum")])
    both = said.join(counted, keys, join_type="full outer")
    failures = []
    for row in both.sort_by([("op_type", "ascending"), ("task_type", "ascending")]).to_pylist():
        name = f"{row['op_type']}/{row['task_type']}"
        count, total = row["count_sum"], row["total_ns_sum"]
        rows, time = row["duration_ns_count"], row["duration_ns_sum"]
        if count != rows:
            failures.append(f"{name}: op_statistic counts {count}, the kernel rows {rows}")
        elif abs(total - time) > TOTAL_TOLERANCE_NS:
            failures.append(f"{name}: op_statistic totals {total} ns, the kernel rows {time} ns")
    rule = "op_statistic equals the aggregate of the kernel rows"
    return Check(file, rule, both.num_rows, len(failures), failures)


def kernels_once(file: str, kernels: pa.Table) -> Check:
    """No kernel stands twice: by device, stream, task, context, start and duration.

    Exports that were appended to one another, or slices that overlap, count a kernel twice.
    """
    keys = ["device_id", "stream_id", "task_id", "context_id", "start_ns", "duration_ns"]
    timed = kernels.select([*keys, "source_file", "source_line"]).filter(pc.is_valid(kernels["start_ns"]))
    counted = timed.group_by(keys).aggregate(
        [([], "count_all"), ("source_line", "min"), ("source_line", "max")]
    )
    twice = counted.filter(pc.greater(counted["count_all"], 1)).sort_by("source_line_min")
    again = pc.sum(pc.subtract(twice["count_all"], 1)).as_py() or 0
    failures = [
        f"stream {row['stream_id']}, task {row['task_id']}, start {row['start_ns']}: "
        f"{row['count_all']} times, lines {row['source_line_min']} and {row['source_line_max']}"
        for row in twice[:_SHOWN].to_pylist()
    ]
    return Check(file, "no kernel stands twice", timed.num_rows, again, failures)


def steps_equal_unions(file: str, steps: pa.Table, kernels: pa.Table) -> Check:
    """Computing and Communication of a step are the unions of its kernel intervals."""
    rows = steps.filter(pc.is_null(steps.column("scope"))).to_pylist()
    by_name = pc.and_(
        pc.is_null(kernels.column("task_type")), pc.equal(kernels.column("category"), "collective")
    )
    collective = pc.or_(_communication(kernels), by_name)
    failures = []
    for row in rows:
        mine = pc.and_(_equals(kernels, "step_id", row), _equals(kernels, "device_id", row))
        for column, mask in (("computing_ns", pc.invert(collective)), ("communication_ns", collective)):
            if row[column] is None:
                continue
            covered = kernels.filter(pc.and_(mine, mask))
            union = union_ns(covered)
            if abs(union - row[column]) > STEP_TOLERANCE_NS + covered.num_rows:
                said = f"step {row['step_id']}: {column} is {row[column]}"
                failures.append(f"{said}, the kernel rows cover {union}")
    rule = "step times equal the unions of the kernel intervals"
    return Check(file, rule, len(rows), len(failures), failures)


def databases_equal_files(file: str, database: pa.Table, kernels: pa.Table) -> Check:
    """A database and the CSVs of one run hold the same kernels: name, start, duration, to the nanosecond."""
    keys = ["name", "start_ns", "duration_ns"]
    one = database.group_by(keys).aggregate([([], "count_all")])
    two = kernels.group_by(keys).aggregate([([], "count_all")]).rename_columns([*keys, "count_in_files"])
    both = one.join(two, keys, join_type="full outer")
    differ = both.filter(
        pc.not_equal(pc.fill_null(both["count_all"], 0), pc.fill_null(both["count_in_files"], 0))
    )
    failures = [
        f"{row['name']} at {row['start_ns']} for {row['duration_ns']} ns: {row['count_all'] or 0} times "
        f"in the database, {row['count_in_files'] or 0} times in the files"
        for row in differ.sort_by([("start_ns", "ascending"), ("name", "ascending")])[:_SHOWN].to_pylist()
    ]
    rule = "database equals CSV to the nanosecond"
    return Check(file, rule, both.num_rows, differ.num_rows, failures)


def step_databases_equal_files(file: str, database: pa.Table, steps: pa.Table) -> Check:
    """The step trace of a database and of the CSV agree on computing and communication."""
    columns = ("computing_ns", "communication_ns", "overlapped_ns")
    known = {(row["device_id"], row["step_id"]): row for row in steps.to_pylist()}
    failures = []
    for row in database.to_pylist():
        other = known.get((row["device_id"], row["step_id"]))
        if other is None:
            failures.append(f"step {row['step_id']} is not in the CSV")
            continue
        failures += [
            f"step {row['step_id']}: {column} is {row[column]} in the database, {other[column]} in the CSV"
            for column in columns
            if row[column] != other[column]
        ]
    rule = "step database equals CSV to the nanosecond"
    return Check(file, rule, database.num_rows, len(failures), failures)


def union_ns(kernels: pa.Table) -> int:
    """Length of the union of the intervals of some kernels; rows without a start are left out."""
    timed = kernels.filter(pc.is_valid(kernels.column("start_ns"))).sort_by("start_ns")
    if not timed.num_rows:
        return 0
    start: npt.NDArray[np.int64] = timed.column("start_ns").to_numpy()
    end = start + timed.column("duration_ns").to_numpy()
    covered = np.concatenate(([start[0]], np.maximum.accumulate(end)[:-1]))
    return int(np.maximum(end - np.maximum(start, covered), 0).sum())


def _communication(kernels: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(pc.is_in(kernels.column("task_type"), value_set=pa.array(_COLLECTIVES)), False)


def _equals(kernels: pa.Table, column: str, step: dict[str, Any]) -> pa.ChunkedArray:
    """Kernels of the step's value in a column; all where the step, or every kernel, has none."""
    values = kernels.column(column)
    if step[column] is None or values.null_count == len(values):
        return pc.is_valid(kernels.column("name"))
    return pc.fill_null(pc.equal(values, step[column]), False)
