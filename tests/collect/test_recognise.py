"""What a path holds is told by folder names and by content, never by a guess."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tilewatch.tasks.ingest.recognise import Kind, recognise


def kinds(given: Path) -> dict[str, tuple[Kind | None, str | None]]:
    return {found.name: (found.kind, found.root) for found in recognise(given)}


def test_all_files_of_the_samples_are_recognised_or_named_with_a_reason(shared: Path) -> None:
    found = recognise(shared / "samples")
    by_top = {kind: {f.name.split("/")[0] for f in found if f.kind is kind} for kind in Kind}
    assert by_top == {
        Kind.PROFILER: {"profiler"},
        Kind.LOG: {"plog"},
        Kind.ENVIRONMENT: {"env"},
        Kind.SERVING: {"serving"},
    }
    assert len([f for f in found if f.kind is Kind.LOG]) == 38
    assert len([f for f in found if f.kind is Kind.ENVIRONMENT]) == 25 + 1
    for unknown in (f for f in found if f.kind is None):
        assert unknown.reason


def test_profiler_folders_are_told_by_their_names_and_own_all_below(tmp_path: Path) -> None:
    for folder in ("node_1_20260101_ascend_pt/PROF_000001_x_y/device_0", "PROF_000002_a_b", "OPPROF_1_z"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "anything.bin").write_bytes(b"\0")
    assert kinds(tmp_path) == {
        "node_1_20260101_ascend_pt/PROF_000001_x_y/device_0/anything.bin": (
            Kind.PROFILER, "node_1_20260101_ascend_pt"),
        "PROF_000002_a_b/anything.bin": (Kind.PROFILER, "PROF_000002_a_b"),
        "OPPROF_1_z/anything.bin": (Kind.PROFILER, "OPPROF_1_z"),
    }  # fmt: skip


def test_a_renamed_torch_npu_folder_is_told_by_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "rank 3" / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    (tmp_path / "rank 3" / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").write_text("Name\n")
    (name,) = kinds(tmp_path)
    assert kinds(tmp_path)[name] == (Kind.PROFILER, "rank 3")
    own = kinds(tmp_path / "rank 3")
    assert own == {"rank 3/ASCEND_PROFILER_OUTPUT/kernel_details.csv": (Kind.PROFILER, "rank 3")}


@pytest.mark.parametrize("name", ["crash.txt", "output", "plog.log"])
def test_a_log_is_told_by_its_lines_whatever_its_name(shared: Path, tmp_path: Path, name: str) -> None:
    source = shared / "samples" / "plog" / "22_8.3.RC1_vllm_grep_prefixed_tiling_failed.log"
    shutil.copyfile(source, tmp_path / name)
    assert kinds(tmp_path / name) == {name: (Kind.LOG, None)}


def test_a_version_file_under_a_wrong_name_is_told_by_its_content(shared: Path, tmp_path: Path) -> None:
    shutil.copyfile(shared / "samples" / "env" / "version_cfg_8.0.0.txt", tmp_path / "version.info")
    assert kinds(tmp_path) == {"version.info": (Kind.ENVIRONMENT, None)}


def test_links_are_named_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("nothing of interest")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = {f.name: f.reason for f in recognise(tmp_path)}
    assert found["loop"] == "a link; only plain files are taken"
    assert len(found) == 2


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        recognise(tmp_path / "nowhere")
