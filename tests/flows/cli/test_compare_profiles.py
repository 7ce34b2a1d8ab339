"""`tilewatch compare before/ after/`: paths are compared where they lie, without store, server or network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.analyse.profile_case import changed, program, write_profile

# Every socket, every S3 client and every write below the home folder would raise.
ALONE = """
import socket, sys
def denied(*a, **k): raise AssertionError("a network was asked for")
socket.socket.connect = socket.socket.bind = socket.create_connection = denied
import tilewatch.infra.archive, tilewatch.infra.services
tilewatch.infra.archive.open_archive = tilewatch.infra.services.store = denied
from tilewatch.flows.cli.app import app
app(sys.argv[1:], prog_name="tilewatch")
"""


def alone(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The verb in a process that is denied network, store and a home folder."""
    environment = {**os.environ, "TILEWATCH_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-c", ALONE, *words], env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.fixture
def sides(tmp_path: Path) -> tuple[str, str]:
    slower = changed(lambda k: [replace(k, us=k.us * 1.2)] if k.op == "GroupedMatmul" else [k])
    base = write_profile(tmp_path / "before" / "x_ascend_pt", program(), seed=1)
    candidate = write_profile(tmp_path / "after" / "x_ascend_pt", slower, seed=2)
    return str(base.parent), str(candidate.parent)


def test_two_folders_need_nothing_and_leave_nothing(tmp_path: Path, sides: tuple[str, str]) -> None:
    done = alone(tmp_path / "home", "compare", *sides)
    assert done.returncode == 0, done.stderr
    assert "GroupedMatmul" in done.stdout and "SLOWER ×1.20" in done.stdout
    assert "within this pair of captures, by 12 and 12 steps" in done.stdout
    assert len(done.stdout.splitlines()) <= 10
    assert not (tmp_path / "home").exists()


def test_json_holds_every_row_and_fail_on_slower_ends_with_one(
    tmp_path: Path, sides: tuple[str, str]
) -> None:
    done = alone(tmp_path / "home", "compare", *sides, "--json", "--fail-on", "slower")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    rows = [row for row in document["rows"] if row["kind"] == "group" and row["verdict"] == "SLOWER"]
    assert [row["name"] for row in rows] == ["GroupedMatmul", "GroupedMatmul"]
    assert document["rows"][0]["kind"] == "step" and document["level"] == "steps"
    same = alone(tmp_path / "home", "compare", sides[0], sides[0], "--fail-on", "slower")
    assert same.returncode == 0, same.stderr


def test_archive_single_file_and_folder_give_the_same_rows(tmp_path: Path, sides: tuple[str, str]) -> None:
    (file,) = Path(sides[1]).rglob("kernel_details.csv")
    loose = shutil.copy(file, tmp_path / "loose.csv")
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", sides[1])
    verdicts = []
    for candidate in (sides[1], loose, archive):
        done = alone(tmp_path / "home", "compare", sides[0], str(candidate), "--json")
        assert done.returncode == 0, done.stderr
        verdicts.append([(r["name"], r["verdict"], r["ratio"]) for r in json.loads(done.stdout)["rows"]])
    assert verdicts[0] == verdicts[1] == verdicts[2]


def test_a_path_without_a_profile_is_one_sentence(tmp_path: Path, sides: tuple[str, str]) -> None:
    (tmp_path / "empty").mkdir()
    done = alone(tmp_path / "home", "compare", sides[0], str(tmp_path / "empty"))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "no kernel of a profile" in done.stderr and "what to do" in done.stderr


def test_real_databases_and_csvs_are_compared(shared: Path, tmp_path: Path) -> None:
    samples = shared / "samples" / "profiler"
    done = alone(
        tmp_path / "home", "compare", "--json",
        str(samples / "msinsight-pytorch-db" / "level1" / "rank0_ascend_pt"),
        str(samples / "msinsight-pytorch-text" / "level1" / "rank0_ascend_pt"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    groups = [row for row in json.loads(done.stdout)["rows"] if row["kind"] == "group"]
    assert len(groups) > 50


def test_the_page_is_one_file_that_asks_for_nothing(tmp_path: Path, sides: tuple[str, str]) -> None:
    page = tmp_path / "page.html"
    done = alone(tmp_path / "home", "compare", *sides, "--page", str(page), "--linears")
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "http" not in text.replace("http://www.w3.org", "") and "<svg" in text
    for words in ("How the step changed", "Kernel groups", "judged apart", "Linears", "tilewatch compare"):
        assert words in text
    assert text.count("<circle") > 24 and "GroupedMatmul" in text


def test_a_notebook_gets_a_frame(sides: tuple[str, str]) -> None:
    import tilewatch

    rows = tilewatch.compare(*sides)
    assert rows.verdict[rows.kind == "group"].value_counts().index[0] == "SAME"
    assert set(rows[rows.verdict == "SLOWER"].name) >= {"GroupedMatmul", "step"}


def test_the_guide_names_settings_and_reasons(tmp_path: Path) -> None:
    done = alone(tmp_path / "home", "collect-guide", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert set(document["recipes"]) == {"torch_npu", "SGLang", "vllm-ascend"}
    assert all(one["why"] for one in document["settings"])
