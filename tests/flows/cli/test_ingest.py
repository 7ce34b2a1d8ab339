"""`tilewatch ingest`: what already lies on a disk becomes captures, tables and an account of every file."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.flows.cli.test_errors import User
from tilewatch.infra.archive import open_archive
from tilewatch.infra.settings import Settings

KERNELS = (
    "Step Id,Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,"
    "Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
    "Output Data Types,Output Formats\n"
)
GOOD = (
    "1,0,aclnnQuantMatmulWeightNz_QuantBatchMatmulV3_QuantBatchMatmulV3,QuantBatchMatmulV3,MIX_AIC,"
    '"1717575960208042.710\t",12.340,0.000,16,32,NO,"""16,4096;32,256,16,32""",INT8;INT8,ND;FRACTAL_NZ,'
    '"""16,1024""",DT_BF16,ND\n'
)
TRUNCATED = "1,0,aclnnQuantMatmulWeightNz_QuantBatchMa\n"


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    made = User(tmp_path_factory.mktemp("user") / "home")
    yield made
    made.run("down")


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profiler folder with one good and one truncated row, and a file that nothing takes."""
    folder = tmp_path_factory.mktemp("profile") / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True)
    (folder / "kernel_details.csv").write_text(KERNELS + GOOD + TRUNCATED)
    (folder / "holiday.txt").write_text("sand")
    return folder.parent


@dataclass(frozen=True)
class Stored:
    """What a user's store holds: every object, and the rows of three tables."""

    objects: frozenset[str]
    tables: dict[str, list[dict[str, Any]]]


def stored(user: User) -> Stored:
    with open_archive(Settings(home=Path(user.environment["TILEWATCH_HOME"]))) as archive:
        names = ("captures", "kernels", "quarantine")
        tables = {name: archive.tables.scan(name).to_pylist() for name in names}
        return Stored(frozenset(info.key for info in archive.objects.list("")), tables)


@dataclass(frozen=True)
class Ingested:
    """One profile ingested, what the command said of it, and what was stored then."""

    capture: dict[str, Any]
    stored: Stored


@pytest.fixture(scope="module")
def ingested(user: User, profile: Path) -> Ingested:
    done = user.run("ingest", str(profile), "--json")
    assert done.returncode == 0, done.stderr
    (capture,) = json.loads(done.stdout)["captures"]
    return Ingested(capture, stored(user))


def test_good_rows_are_stored_the_bad_row_is_in_quarantine_and_nothing_is_silent(ingested: Ingested) -> None:
    (file,) = [f for f in ingested.capture["files"] if f["file"].endswith("kernel_details.csv")]
    assert (file["rows"], file["quarantined"]) == ({"kernels": 1}, 1)
    (kernel,) = ingested.stored.tables["kernels"]
    assert (kernel["op_type"], kernel["duration_ns"], kernel["block_dim"]) == (
        "QuantBatchMatmulV3",
        12_340,
        16,
    )
    assert kernel["start_ns"] == 1_717_575_960_208_042_710
    assert kernel["input_formats"] == ["ND", "FRACTAL_NZ"]
    (bad,) = ingested.stored.tables["quarantine"]
    assert bad["source_line"] == 3 and bad["raw_text"].startswith("1,0,aclnnQuantMatmul")


def test_the_same_bytes_again_are_a_no_op_even_from_an_archive(
    user: User, profile: Path, ingested: Ingested, tmp_path: Path
) -> None:
    packed = tmp_path / "profile.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(profile, profile.name)
    (again,) = json.loads(user.run("ingest", str(packed), "--json").stdout)["captures"]
    assert [ingested.capture["created"], again["created"]] == [True, False]
    assert ingested.capture["capture_id"] == again["capture_id"]
    assert len(ingested.stored.tables["captures"]) == 1
    assert stored(user) == ingested.stored


def test_a_dry_run_accounts_for_everything_and_stores_nothing(profile: Path, tmp_path: Path) -> None:
    user = User(tmp_path / "home")
    done = user.run("ingest", str(profile), "--dry-run")
    assert "not stored (dry run)" in done.stdout and "holiday.txt" in done.stdout
    assert "Files below profiler/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/" in done.stdout
    (kernels,) = [line for line in done.stdout.splitlines() if "kernel_details.csv" in line]
    assert "1 kernels" in kernels and "1 × row_structure" in kernels
    with open_archive(Settings(home=Path(user.environment["TILEWATCH_HOME"]))) as archive:
        assert list(archive.objects.list("raw/")) == []


def test_what_is_not_recognised_fails_and_says_so(user: User, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    said = user.fails("ingest", str(tmp_path / "notes.txt"), code=1)
    assert "nothing was recognised" in said


def test_an_archive_that_climbs_out_of_its_folder_is_refused_by_name(user: User, tmp_path: Path) -> None:
    evil = tmp_path / "evil.tar.gz"
    with tarfile.open(evil, "w:gz") as archive:
        (tmp_path / "inside").write_text("x")
        archive.add(tmp_path / "inside", "../climbed.txt")
    said = user.fails("ingest", str(evil), code=1)
    assert "../climbed.txt" in said and not (tmp_path / "climbed.txt").exists()
