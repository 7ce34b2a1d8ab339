"""Loss of log lines as numbers: jumps of counters, rotation and file times."""

from __future__ import annotations

from tilewatch.tasks.read.plog.log_loss import LossCounter, file_time_loss
from tilewatch.tasks.read.plog.loss_checks import loss_checks


def test_missing_sequence_numbers_are_counted_in_any_order_and_once() -> None:
    loss = LossCounter()
    for number in (10, 12, 11, 12, 15, 9):
        loss.sequence(number)
    assert loss.numbers()["sequences_seen"] == 6 - 1
    assert loss.numbers()["sequences_missing"] == 2  # 13 and 14


def test_a_sequence_number_far_from_all_others_does_not_count_as_loss() -> None:
    loss = LossCounter()
    for number in (1, 2, 10**17):
        loss.sequence(number)
    assert loss.numbers()["sequences_missing"] == 0
    assert loss.numbers()["sequences_out_of_range"] == 1


def test_task_ids_jump_within_their_stream_and_wrap_at_16_bits() -> None:
    loss = LossCounter()
    for stream, task in ((2, 65534), (3, 5), (2, 65535), (2, 0), (2, 4), (3, 6)):
        loss.task(0, stream, task)
    numbers = loss.numbers()
    assert (numbers["task_id_jumps"], numbers["task_ids_missing"]) == (1, 3)


def test_a_running_count_of_the_runtime_shows_what_was_not_logged() -> None:
    loss = LossCounter()
    for count in (5, 6, 9):
        loss.counter("task_launched_num", count)
    assert loss.numbers()["counted_tasks_missing"] == 2


def test_a_debug_log_that_begins_after_the_run_log_has_lost_its_head() -> None:
    files = [
        ("log/run/plog/plog-67380_20250418094000000.log", 100),
        ("log/debug/plog/plog-67380_20250418094019557.log", 20 << 20),
        ("log/debug/plog/plog-67380_20250418094014712.log", 20 << 20),
    ]
    process = file_time_loss(files)["67380"]
    assert process["head_lost_ns"] == 14_712_000_000
    assert process["debug_files"] == 2
    assert process["last_created_ns"] - process["first_created_ns"] == 4_845_000_000
    assert process["rotated"] is False


def test_ten_debug_files_of_which_the_oldest_is_full_have_rotated() -> None:
    files = [(f"debug/plog/plog-7_2025041809400{i}000.log", 20 << 20) for i in range(10)]
    assert file_time_loss(files)["7"]["rotated"] is True
    assert file_time_loss(files)["7"]["head_lost_ns"] is None


def test_loss_is_reported_as_warnings_with_numbers() -> None:
    loss = LossCounter()
    for number in (10, 13):
        loss.sequence(number)
    files = [
        ("log/run/plog/plog-7_20250418094000000.log", 1),
        ("log/debug/plog/plog-7_20250418094002500.log", 1),
    ]
    calls, head = loss_checks({"log/debug/plog:7": loss.numbers()}, file_time_loss(files))
    assert (calls.file, calls.row_count, calls.failed_count) == ("log/debug/plog:7", 2, 2)
    assert calls.detail == "at most 2 operator calls by their sequence numbers"
    assert (head.file, head.detail) == ("pid 7", "the first 2.500 s by the times of the files")
    assert {calls.severity, head.severity} == {"warning"}


def test_a_log_without_a_gap_passes_and_one_that_counts_nothing_is_not_judged_by_counts() -> None:
    loss = LossCounter()
    nothing = loss.numbers()
    for number in (10, 11):
        loss.sequence(number)
    checks = list(loss_checks({"a:1": loss.numbers(), "b:2": nothing}, {}))
    assert [(c.file, c.failed_count) for c in checks] == [("a:1", 0)]
