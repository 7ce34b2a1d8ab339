"""Builds as environments: how they are written, and what a process of each is started under."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilewatch.tasks.measure.environment import (
    BuildEnvironment,
    BuildEnvironmentError,
    of_facts,
    parse_environment,
)
from tilewatch.tasks.measure.run import MeasureError


@pytest.fixture
def set_env(tmp_path: Path) -> Path:
    """The ``set_env.sh`` of a CANN in ``tmp_path``/cann-b; it talks, as real ones may."""
    home = tmp_path / "cann-b"
    (home / "lib64").mkdir(parents=True)
    script = home / "set_env.sh"
    script.write_text(
        'echo hello\nexport ASCEND_HOME_PATH="$(dirname "${BASH_SOURCE[0]}")"\n'
        "export LD_LIBRARY_PATH=${ASCEND_HOME_PATH}/lib64:${LD_LIBRARY_PATH}\n"
    )
    return script


def test_an_option_names_label_script_interpreter_and_libraries() -> None:
    written = "new=/opt/b/set_env.sh,python=/opt/v/bin/python,library_path=/opt/l"
    environment = parse_environment(written)
    assert environment == BuildEnvironment("new", "/opt/b/set_env.sh", "/opt/v/bin/python", "/opt/l")
    assert environment.option() == written and of_facts(environment.facts()) == environment
    assert of_facts({}) is None


@pytest.mark.parametrize("text", ["new", "new=", "=/a", "n w=/a", "new=speed=/a", "new=/a,/b", "new=python="])
def test_an_option_that_says_something_else_is_told_how_it_is_written(text: str) -> None:
    with pytest.raises(BuildEnvironmentError, match="write LABEL=/path/set_env.sh"):
        parse_environment(text)


def test_a_process_sees_what_the_script_exports_and_nothing_of_the_workers_own_cann(
    set_env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "cann-a"
    (own / "lib64").mkdir(parents=True)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(own))
    monkeypatch.setenv("ASCEND_OPP_PATH", str(own / "opp"))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{own}/lib64{os.pathsep}/driver/lib64")
    found = BuildEnvironment("b", str(set_env), library_path="/first").variables()
    assert found["ASCEND_HOME_PATH"] == str(set_env.parent) and "ASCEND_OPP_PATH" not in found
    assert found["LD_LIBRARY_PATH"].split(os.pathsep) == [
        "/first",
        f"{set_env.parent}/lib64",
        "/driver/lib64",
    ]


def test_without_a_script_the_workers_own_variables_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_HOME_PATH", "/opt/cann")
    assert BuildEnvironment("b", python="/v/bin/python").variables() == dict(os.environ)


def test_a_script_that_is_missing_or_fails_is_named_with_its_environment(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match=r"environment b: .*/none\.sh is no file"):
        BuildEnvironment("b", str(tmp_path / "none.sh")).variables()
    broken = tmp_path / "broken.sh"
    broken.write_text("echo no such toolkit >&2\nreturn 3\n")
    with pytest.raises(MeasureError, match=r"environment b: .*/broken\.sh failed: no such toolkit"):
        BuildEnvironment("b", str(broken)).variables()
