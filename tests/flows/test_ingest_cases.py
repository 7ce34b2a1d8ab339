"""Ingest of trees as people have them: copies, nested folders, a bad one among good ones. On a real store."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tilewatch.flows.cli.app import app
from tilewatch.flows.steps import ingest as step
from tilewatch.flows.steps.ingest import IngestReport, ingest_paths
from tilewatch.infra.archive import Archive
from tilewatch.infra.objects import Endpoint, ObjectStore
from tilewatch.infra.settings import Settings
from tilewatch.infra.tables import TableStore
from tilewatch.tasks.read.captures.ingested_capture import IngestedTables, read_ingested

Ingest = Callable[..., IngestReport]


@pytest.fixture
def archive(new_bucket: Callable[[], Endpoint]) -> Archive:
    endpoint = new_bucket()
    return Archive(endpoint, ObjectStore(endpoint), TableStore(endpoint))


@pytest.fixture
def ingest(archive: Archive, tmp_path: Path) -> Ingest:
    """Ingests paths into the archive, as build "x"."""
    settings = Settings(home=tmp_path / "home")
    return lambda *paths: ingest_paths(settings, archive, paths, "x")


def rows(archive: Archive, table: str) -> int:
    return archive.tables.scan(table).num_rows


def test_one_profile_twice_in_a_tree_is_stored_once_and_the_copy_is_told(
    shared: Path, archive: Archive, ingest: Ingest
) -> None:
    report = ingest(shared / "cases" / "same_profile_twice")
    assert [(c.created, c.capture.path.split("/")[0]) for c in report.captures] == [(True, "a"), (False, "b")]
    assert report.failed == ()
    assert {name: rows(archive, name) for name in ("captures", "kernels", "operators")} == {
        "captures": 1, "kernels": 1, "operators": 1,
    }  # fmt: skip
    versions = len(archive.tables.history("kernels"))
    again = ingest(shared / "cases" / "same_profile_twice" / "b")
    assert [c.created for c in again.captures] == [False]
    assert len(archive.tables.history("kernels")) == versions
    assert archive.tables.scan("captures")["path"][0].as_py().startswith("a/")


def test_the_output_folder_of_a_profile_that_is_stored_adds_no_kernel_and_says_where_they_are(
    shared: Path, archive: Archive, ingest: Ingest
) -> None:
    case = shared / "cases" / "nested_same_profile"
    (outer,) = ingest(case).captures
    (inner,) = ingest(case / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT").captures
    assert (inner.created, inner.held_by) == (False, outer.capture.capture_id)
    assert outer.capture.capture_id in str(inner.account[0].note)
    assert rows(archive, "kernels") == 8 and rows(archive, "captures") == 1


def test_a_profile_around_an_output_folder_that_is_stored_leaves_the_kernels_where_they_are(
    shared: Path, archive: Archive, ingest: Ingest
) -> None:
    case = shared / "cases" / "nested_same_profile"
    (inner,) = ingest(case / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT").captures
    for created in (True, False):
        (outer,) = ingest(case).captures
        assert (outer.created, outer.held_by) == (created, None)
        notes = {a.file.rsplit("/", 1)[-1]: a.note for a in outer.account}
        assert inner.capture.capture_id in str(notes["kernel_details.csv"])
        assert rows(archive, "kernels") == 8 and rows(archive, "profiler_settings") == 3


def test_the_folders_above_equal_names_stand_on_the_capture(
    shared: Path, archive: Archive, ingest: Ingest
) -> None:
    ingest(shared / "cases" / "same_basename_provenance")
    found = archive.tables.query(
        "SELECT path, duration_ns FROM kernels JOIN captures USING (capture_id) ORDER BY path"
    )
    assert found.to_pylist() == [
        {"path": "round_000/msprof/shape_1", "duration_ns": 2100},
        {"path": "round_001/msprof/shape_1", "duration_ns": 3200},
    ]


def test_a_capture_that_fails_is_named_leaves_nothing_and_the_others_are_stored(
    shared: Path, archive: Archive, ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader gives a kernel twice: nothing of that capture stays, and all of the others."""
    tree = tmp_path / "tree"
    shutil.copytree(shared / "cases" / "same_basename_provenance", tree)
    shutil.copytree(shared / "cases" / "same_profile_twice" / "a", tree / "faulty")

    def faulty(folder: Path, *, raw_prefix: str, spool: Path) -> IngestedTables:
        found = read_ingested(folder, raw_prefix=raw_prefix, spool=spool)
        if any("PROF_" in entry.file for entry in found.account):
            kernels = found.tables["kernels"]
            found.tables["kernels"] = pa.concat_tables([kernels, kernels])
        return found

    monkeypatch.setattr(step, "read_ingested", faulty)
    report = ingest(tree)
    (failed,) = report.failed
    assert failed.name.startswith("tree/faulty/PROF_") and "occurs 2 times" in failed.reason
    assert len(report.captures) == 2 and rows(archive, "kernels") == 2 and rows(archive, "operators") == 0
    assert not [i.key for i in archive.objects.list("raw/") if "PROF_" in i.key]


def test_json_names_what_is_not_taken_as_the_text_does(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWATCH_HOME", str(tmp_path / "home"))
    case = str(shared / "cases" / "json_omits_not_taken")
    done = CliRunner().invoke(app, ["ingest", "--dry-run", "--json", case])
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert {entry["name"] for entry in document["not_taken"]} == {
        "json_omits_not_taken: MatMulV2.csv", "json_omits_not_taken: expected.txt",
    }  # fmt: skip
    text = CliRunner().invoke(app, ["ingest", "--dry-run", case], env={"COLUMNS": "200"}).stdout
    assert all(entry["name"] in text and entry["reason"] in text for entry in document["not_taken"])
