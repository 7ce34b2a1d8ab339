"""What ingested files say of device, clock and time, and what they can and cannot answer."""

from __future__ import annotations

import shutil
from pathlib import Path

from tilewatch.tasks.ingest.answers import Answer, answers
from tilewatch.tasks.ingest.captures import ingest_path
from tilewatch.tasks.read.captures.ingested_capture import IngestedTables, read_ingested

CANN83 = "samples/profiler/msinsight-st-level2-cann83rc1"
TEXT = "samples/profiler/msinsight-pytorch-text"


def ingested(given: Path, tmp_path: Path) -> list[IngestedTables]:
    return [read_ingested(c.folder) for c in ingest_path(given, tmp_path / "work").captures]


def asked(given: Path, tmp_path: Path) -> dict[str, Answer]:
    return {a.question: a for a in answers([found.tables for found in ingested(given, tmp_path)])}


def test_the_info_files_of_a_profile_give_rank_level_and_time(shared: Path, tmp_path: Path) -> None:
    (found,) = ingested(shared / CANN83 / "rank_0_ascend_pt", tmp_path)
    (row,) = found.tables["captures"].to_pylist()
    told = dict(row["environment"])
    assert (told["rank_id"], told["profiler_level"]) == ("0", "Level2")
    assert row["ended_ns"] == 1_764_246_878_131_995_320
    assert row["ended_ns"] - row["started_ns"] == 4_699_802_061_975_030 - 4_699_801_002_845_430


def test_the_info_files_of_msprof_give_device_cores_and_clock(shared: Path, tmp_path: Path) -> None:
    (run,) = (shared / "samples/profiler/mindinsight-msprof-2023-08").glob("PROF_*")
    (found,) = ingested(run, tmp_path)
    (row,) = found.tables["captures"].to_pylist()
    told = dict(row["environment"])
    assert (row["device"], row["device_class"]) == ("0", "Ascend910A")
    assert (told["aic_count"], told["aic_frequency_mhz"]) == ("32", "1000")
    assert row["started_ns"] == 1_692_340_024_324_979_000


def test_a_complete_profile_answers_and_says_what_a_single_rank_and_step_cannot(
    shared: Path, tmp_path: Path
) -> None:
    found = asked(shared / CANN83 / "rank_0_ascend_pt", tmp_path)
    assert {question for question, a in found.items() if a.answered} >= {"shapes", "formats", "counters"}
    assert not found["ranks"].answered and "every rank" in found["ranks"].setting
    assert found["shapes"].setting == ""


def test_a_timeline_alone_says_which_setting_would_have_given_shapes(shared: Path, tmp_path: Path) -> None:
    found = asked(shared / "cases" / "trace_view_only", tmp_path)
    assert not found["shapes"].answered and "record_shapes=True" in found["shapes"].setting
    assert found["shapes"].found == "0 of 7 kernels have shapes"


def test_two_ranks_are_ranks(shared: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for rank in ("rank0_ascend_pt", "rank1_ascend_pt"):
        shutil.copytree(shared / TEXT / "level1" / rank, tree / rank)
    found = asked(tree, tmp_path)
    assert found["ranks"].answered and found["ranks"].found == "2 ranks or devices"


def test_logs_alone_ask_nothing_back(shared: Path, tmp_path: Path) -> None:
    log = shared / "cases" / "drv_log_lines"
    (found,) = ingested(log, tmp_path)
    assert answers([found.tables]) == ()
    assert found.tables["quarantine"].num_rows == 0
