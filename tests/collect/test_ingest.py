"""Existing folders, files and archives become captures, and every file is accounted for."""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
from pathlib import Path

import pyarrow.compute as pc
import pytest

from tilewatch.infra.objects import ObjectStore
from tilewatch.tasks.collect.archive import archive_capture
from tilewatch.tasks.collect.manifest import CaptureError, read_manifest
from tilewatch.tasks.collect.unpack import ArchiveError
from tilewatch.tasks.ingest.captures import Ingested, ingest_path
from tilewatch.tasks.read.captures.ingested_capture import ingested_origin, read_ingested

RANK = "msinsight-st-level2-cann83rc1/rank_0_ascend_pt"


@pytest.fixture
def host(shared: Path, tmp_path: Path) -> Path:
    """A folder as a host leaves it: one profiler run, a log tree, version files, a result, something else."""
    samples, folder = shared / "samples", tmp_path / "host"
    shutil.copytree(samples / "profiler" / RANK, folder / "prof" / "rank_0_ascend_pt")
    plog = folder / "log" / "debug" / "plog"
    plog.mkdir(parents=True)
    for path in (samples / "plog" / "generated").glob("9.0.0*"):
        shutil.copyfile(path, plog / path.name.removeprefix("9.0.0_"))
    shutil.copyfile(samples / "env" / "install_info_8.3.RC1.alpha001.txt", folder / "ascend_install.info")
    shutil.copyfile(samples / "env" / "npu-smi_25.5.0_910B2.txt", folder / "smi.txt")
    shutil.copy(samples / "serving" / "sglang_0.5.23_random_ids_details.jsonl", folder)
    (folder / "holiday.jpg").write_bytes(b"\xff\xd8")
    return folder


def ids(ingested: Ingested) -> list[str]:
    return [capture.capture_id for capture in ingested.captures]


def test_one_run_with_logs_versions_and_results_is_one_capture(host: Path, tmp_path: Path) -> None:
    ingested = ingest_path(host, tmp_path / "work")
    (capture,) = ingested.captures
    assert capture.kinds == ("environment", "log", "profiler", "serving")
    assert capture.build.startswith("cann8.3.RC1.alpha001-")
    assert [(s.name, s.reason) for s in ingested.skipped] == [
        ("holiday.jpg", "neither profiler output, log, version file nor serving result")
    ]
    top = {path.name for path in capture.folder.iterdir()}
    assert top == {
        "capture.json", "environment.json", "manifest.json", "profiler", "log", "environment", "serving",
    }  # fmt: skip
    document = json.loads((capture.folder / "environment.json").read_bytes())
    assert document["build"]["components"]["cann_inner"] == "V100R001C23B046"
    assert document["device"]["device_class"] == "910B2"
    assert document["device_state"]["chips"][0]["hbm_total_mb"] == 65536


def test_an_ingested_capture_gives_tables_and_an_account_of_every_file(host: Path, tmp_path: Path) -> None:
    (capture,) = ingest_path(host, tmp_path / "work").captures
    found = read_ingested(capture.folder, raw_prefix="raw/x")
    rows = {name: table.num_rows for name, table in found.tables.items()}
    assert rows["kernels"] == 2463 and rows["tilings"] == 7 and rows["serving_results"] == 1
    assert rows["captures"] == 1 and rows["quarantine"] == 0
    listed = {f.path for f in read_manifest(capture.folder).files} - {"capture.json", "environment.json"}
    assert {entry.file for entry in found.account} == listed
    for table in ("kernels", "tilings"):
        assert set(found.tables[table]["source_file"].unique().to_pylist()) <= listed
        assert set(found.tables[table]["capture_id"].unique().to_pylist()) == {capture.capture_id}
    assert set(found.tables["tilings"]["cann_version"].to_pylist()) == {"8.3.RC1.alpha001"}
    failed = found.checks.filter(pc.invert(found.checks["success"])).to_pylist()
    assert found.checks.num_rows == 8 and {row["severity"] for row in failed} == {"warning"}
    assert {row["detail"] for row in failed} == {
        "at most 997 operator calls by their sequence numbers; at most 4 tasks by their ids"
    }
    tiling = {a.file: a.rows for a in found.account if a.file.startswith("log/")}
    assert sum(r["tilings"] for r in tiling.values()) == 7
    (kernels,) = [a.note for a in found.account if "kernels" in a.rows]
    assert kernels == "9.7% of the time is category other"
    (row,) = found.tables["captures"].to_pylist()
    assert (row["status"], row["raw_prefix"], row["device_class"]) == ("ingested", "raw/x", "910B2")


def test_the_same_bytes_from_another_place_and_in_an_archive_are_the_same_capture(
    host: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere" / "copy"
    shutil.copytree(host, moved)
    archive = tmp_path / "host.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(host, arcname=".")
    first = ids(ingest_path(host, tmp_path / "one"))
    assert ids(ingest_path(host, tmp_path / "one")) == first
    assert ids(ingest_path(moved, tmp_path / "two")) == first
    assert ids(ingest_path(archive, tmp_path / "three")) == first
    assert len(list((tmp_path / "one").iterdir())) == 1


def test_several_runs_are_several_captures_and_the_logs_are_their_own(
    shared: Path, host: Path, tmp_path: Path
) -> None:
    second = "msinsight-st-level2-cann83rc1/rank_1_ascend_pt"
    shutil.copytree(shared / "samples" / "profiler" / second, host / "prof" / "rank_1_ascend_pt")
    captures = ingest_path(host, tmp_path / "work").captures
    assert [capture.kinds for capture in captures] == [
        ("environment", "profiler"), ("environment", "profiler"), ("environment", "log", "serving"),
    ]  # fmt: skip
    assert len({capture.build for capture in captures}) == 1


def test_without_version_files_the_build_is_unknown_unless_the_caller_names_it(
    shared: Path, tmp_path: Path
) -> None:
    log = shared / "samples" / "plog" / "09_2025-05_fault_GatherV3_tilingKey10330.log"
    (capture,) = ingest_path(log, tmp_path / "work").captures
    origin = ingested_origin(capture.folder)
    assert (origin.build, origin.build_id, origin.experiment) == ("unknown", "unknown", "ingested")
    (named,) = ingest_path(log, tmp_path / "work", build="cann-7.8").captures
    assert ingested_origin(named.folder).build == "cann-7.8"


def test_without_version_files_the_build_is_what_torch_npu_wrote_about_the_process(
    shared: Path, tmp_path: Path
) -> None:
    (capture,) = ingest_path(shared / "samples" / "profiler" / RANK, tmp_path / "work").captures
    assert capture.build.startswith("cann8.3.RC1-")
    document = json.loads((capture.folder / "environment.json").read_bytes())
    assert document["build"]["components"] == {"cann": "8.3.RC1", "torch_npu": "2.7.1"}
    assert [file["kind"] for file in document["version_files"]] == ["profiler_info"]


def test_an_ingested_capture_is_archived_once_under_ingested(
    shared: Path, tmp_path: Path, object_store: ObjectStore
) -> None:
    log = shared / "samples" / "plog" / "09_2025-05_fault_GatherV3_tilingKey10330.log"
    (capture,) = ingest_path(log, tmp_path / "work").captures
    stored = archive_capture(capture.folder, object_store)
    assert stored.prefix == f"raw/ingested/unknown/{capture.capture_id}"
    assert (stored.created, stored.file_count) == (True, 3)
    assert archive_capture(capture.folder, object_store).created is False


def test_a_draft_left_by_a_killed_run_is_made_anew(host: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / ".draft" / "log").mkdir(parents=True)
    (work / ".draft" / "log" / "half.log").write_text("half")
    (capture,) = ingest_path(host, work).captures
    assert not (capture.folder / "log" / "half.log").exists()


def test_a_capture_that_was_changed_is_refused_by_name(host: Path, tmp_path: Path) -> None:
    (capture,) = ingest_path(host, tmp_path / "work").captures
    changed = next((capture.folder / "log").rglob("*.log"))
    changed.write_bytes(changed.read_bytes() + b"\n")
    with pytest.raises(CaptureError, match=changed.name):
        read_ingested(capture.folder)


def test_an_unsafe_archive_leaves_the_workspace_empty(tmp_path: Path) -> None:
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as packed:
        packed.addfile(tarfile.TarInfo("../evil"))
    with pytest.raises(ArchiveError, match=r"evil.tar: entry '../evil'"):
        ingest_path(archive, tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []
    assert not (tmp_path / "evil").exists()


def test_a_folder_with_nothing_known_says_so(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    ingested = ingest_path(tmp_path / "given", tmp_path / "work")
    assert ingested.captures == ()
    assert [s.reason for s in ingested.skipped] == ["holds no file"]


def test_stage_profiles_and_a_benchmark_result_become_steps_kernels_and_requests(
    shared: Path, tmp_path: Path
) -> None:
    """What a server and its client left in one folder, with no profiler folder around it."""
    folder = tmp_path / "host"
    folder.mkdir()
    shutil.copy(shared / "samples/serving/sglang_0.5.23_random_ids_details.jsonl", folder)
    for stage, mode in (("EXTEND", "EXTEND bs=2 toks=64"), ("decode", "DECODE bs=2")):
        step = {"ph": "X", "cat": "user_annotation", "name": f"step[{mode}]", "ts": 1, "dur": 9, "tid": 1}
        mm = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 2, "dur": 4, "tid": 1, "pid": 1}
        text = json.dumps({"traceEvents": [{**step, "pid": 1}, mm]}).encode()
        (folder / f"17-TP-0-{stage}.trace.json.gz").write_bytes(gzip.compress(text))
    (capture,) = ingest_path(folder, tmp_path / "work").captures
    found = read_ingested(capture.folder)
    assert sorted(found.tables["stage_steps"]["phase"].to_pylist()) == ["decode", "prefill"]
    assert found.tables["kernels"].num_rows == 2 and found.tables["requests"].num_rows == 12
    assert found.tables["serving_metrics"].num_rows == 4 * 6 + 2
    assert found.tables["quarantine"].num_rows == 0
    assert set(found.tables["requests"]["capture_id"].to_pylist()) == {capture.capture_id}
