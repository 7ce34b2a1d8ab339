"""What a log lost as self-checks; apart from ``log_loss``, whose reader must stay small in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewatch.tasks.read.profiler.self_checks import Check


def loss_checks(
    loss: Mapping[str, Mapping[str, int]], times: Mapping[str, Mapping[str, Any]]
) -> Iterator[Check]:
    """The loss of every process as self-checks: warnings, since the numbers are upper bounds.

    ``loss`` has the numbers of ``LossCounter`` by process (``folder:pid``), ``times`` those of
    ``file_time_loss`` by pid. A process that counted nothing has no check of its counts.
    """
    for process, numbers in loss.items():
        found = [
            (numbers["sequences_missing"], "operator calls by their sequence numbers"),
            (numbers["task_ids_missing"], "tasks by their ids"),
            (numbers["counted_tasks_missing"], "tasks by the runtime's own count"),
        ]
        failures = [f"at most {missing} {what}" for missing, what in found if missing]
        if (seen := numbers["sequences_seen"]) or failures:
            missing = sum(count for count, _ in found)
            yield Check(process, "no call or task is missing in the log", seen, missing, failures, "warning")
    for pid, files in times.items():
        failures = []
        if files["head_lost_ns"]:
            failures.append(f"the first {files['head_lost_ns'] / 1e9:.3f} s by the times of the files")
        if files["rotated"]:
            failures.append("as many files as the logger keeps, and the oldest is full: older ones are gone")
        count = files["debug_files"]
        yield Check(f"pid {pid}", "no file of the log is missing", count, len(failures), failures, "warning")
