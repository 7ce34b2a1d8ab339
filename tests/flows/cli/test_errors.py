"""What can go wrong for a user is one clear message and an exit code, never a traceback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TILEWATCH = Path(sys.executable).parent / "tilewatch"


class User:
    """A user with a home folder; ``fails`` types a command that must fail well."""

    def __init__(self, home: Path, **environment: str) -> None:
        own = {"TILEWATCH_HOME": str(home), "TILEWATCH_LOCK_FOLDER": str(home / "locks")}
        self.environment = {**os.environ, **own, **environment}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(TILEWATCH), *words], env=self.environment, capture_output=True, text=True, timeout=120
        )

    def fails(self, *words: str, code: int) -> str:
        done = self.run(*words)
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr + done.stdout
        return done.stderr


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    made = User(tmp_path / "home")
    yield made
    made.run("down")


def test_wrong_sql_shows_what_the_database_says(user: User) -> None:
    assert "noSuch" in user.fails("query", "SELECT noSuch FROM runs", code=2)
    assert "a query is one statement that reads" in user.fails("query", "DROP TABLE runs", code=2)


def test_a_query_on_an_empty_archive_is_an_empty_answer(user: User) -> None:
    done = user.run("query", "SELECT count(*) AS n FROM samples", "--json")
    assert done.returncode == 0 and '"n": 0' in done.stdout


def test_an_unknown_setting_names_the_file_and_what_is_allowed(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("s3_buckett: x\n")
    said = User(tmp_path / "home", TILEWATCH_CONFIG=str(config)).fails("runs", code=2)
    assert "unknown setting s3_buckett" in said and "s3_bucket" in said


def test_an_unreachable_store_says_so_within_seconds(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    external = {
        "TILEWATCH_S3_ENDPOINT": f"http://127.0.0.1:{port}",
        "TILEWATCH_S3_ACCESS_KEY": "someone",
        "TILEWATCH_S3_SECRET_KEY": "a-secret-that-must-not-show",
    }
    said = User(tmp_path / "home", **external).fails("runs", code=3)
    assert f"127.0.0.1:{port}" in said and "a-secret-that-must-not-show" not in said


def test_wrong_credentials_say_so_and_do_not_show_the_secret(user: User, tmp_path: Path) -> None:
    up = user.run("up", "--store-only")
    assert up.returncode == 0
    address = next(word for word in up.stdout.replace(",", " ").split() if word.startswith("http://"))
    external = {
        "TILEWATCH_S3_ENDPOINT": address,
        "TILEWATCH_S3_ACCESS_KEY": "someone",
        "TILEWATCH_S3_SECRET_KEY": "a-secret-that-must-not-show",
    }
    said = User(tmp_path / "other", **external).fails("runs", code=3)
    assert "a-secret-that-must-not-show" not in said and "error:" in said


def test_a_python_without_torch_names_the_setting(tmp_path: Path, prefect_server: str) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    python = str(bare / "bin" / "python")
    user = User(tmp_path / "home", TILEWATCH_MEASURE_PYTHON=python, PREFECT_API_URL=prefect_server)
    said = user.fails("run", "A", "--preset", "smoke", code=3)
    assert "measure_python" in said and ("no torch" in said or "no numpy" in said)
    user.run("down")


def test_an_unknown_experiment_preset_or_point_says_what_there_is(user: User) -> None:
    assert "known: A, B, C, D, E" in user.fails("run", "Z", code=2)
    assert "no preset 'full'; known: smoke, quick" in user.fails("run", "E", "--preset", "full", code=2)
    assert "servers.sglang.variables" in user.fails(
        "run", "E", "--preset", "reference_ci", "--agent", "npu", code=2
    )
    assert "agent simulated cannot run" in user.fails("run", "E", "--agent", "simulated", code=2)
    assert "serving has no axis" in user.fails("run", "A", "E", "--axis", "decode", code=2)
    assert "no axis list 'rush'" in user.fails("run", "A", "--axis", "rush", code=2)
    assert "has no point" in user.fails("run", "A", "--point", "0" * 16, code=2)
    assert "quick" in user.fails("run", "A", "--preset", "enormous", code=2)


def test_an_upgrade_from_a_cann_that_has_no_rules_is_one_sentence(user: User) -> None:
    asked = ("upgrade", "A", "--agent", "simulated", "--preset", "smoke", "--build", "sim-cann9.0.0")
    said = user.fails(*asked, "--cann", "1.2.3", "--to", "9.0.0", "--baseline", "X", code=2)
    assert said.startswith("error: cann") and "1.2.3" in said and said.count("\n") == 1


def test_a_malformed_experiment_file_names_file_line_and_field(tmp_path: Path) -> None:
    folder = tmp_path / "experiments"
    shutil.copytree(Path(__file__).parents[3] / "flows" / "experiments", folder)
    broken = folder / "quant_matmul.yaml"
    broken.write_text(broken.read_text().replace("processes: 5", "processes: five"))
    said = User(tmp_path / "home", TILEWATCH_EXPERIMENTS=str(folder)).fails("run", "A", code=2)
    line = broken.read_text().split("processes: five")[0].count("\n") + 1
    assert f"quant_matmul.yaml:{line}: presets.quick.processes: Input should be a valid integer" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(small)], check=True)
    try:
        said = User(small / "home").fails("run", "A", "--preset", "smoke", code=3)
        assert "space" in said and "what to do:" in said
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_run_that_is_not_there_says_which_are(user: User) -> None:
    assert "is not in the spool" in user.fails("run", "--resume", "01NOTHERE", code=1)
    assert "is not in the archive" in user.fails("show", "01NOTHERE", code=1)


def test_comparing_what_was_never_measured_says_which_builds_are_there(
    user: User, prefect_server: str
) -> None:
    user.environment["PREFECT_API_URL"] = prefect_server
    assert "is neither an archived run nor a build" in user.fails("compare", "a", "b", code=1)
    assert "b is neither an archived run nor a build" in user.fails("compare", "@baseline", "b", code=1)


def test_a_home_that_cannot_be_written_names_the_setting(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    said = User(blocked / "home").fails("runs", code=3)
    assert "error:" in said and str(blocked) in said


def test_two_homes_have_two_stores_side_by_side(tmp_path: Path) -> None:
    users = [User(tmp_path / name) for name in ("one", "two")]
    try:
        addresses = {user.run("up", "--store-only").stdout.split()[2] for user in users}
        assert len(addresses) == 2
        assert all("running" in user.run("status").stdout for user in users)
    finally:
        for user in users:
            assert user.run("down").stdout.strip() == "stopped"
