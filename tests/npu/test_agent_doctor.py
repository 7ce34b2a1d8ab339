"""`tilewatch agent doctor`: plain words on what is missing for an NPU, and how to mend it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewatch.flows.agents import doctor
from tilewatch.infra.doctor import Finding
from tilewatch.infra.settings import Settings
from tilewatch.tasks.measure.program import locks

TILEWATCH = Path(sys.executable).parent / "tilewatch"
TENANT = """#!/bin/sh
echo '| 0       0                 | 4711          | python3                  | 2048                    |'
"""


def found(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def test_a_host_without_an_npu_gets_a_page_of_remedies_and_no_traceback(tmp_path: Path) -> None:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("LD_LIBRARY_PATH", "ASCEND_HOME_PATH", "TILEWATCH_MEASURE_PYTHON")
    } | {"TILEWATCH_HOME": str(tmp_path)}
    done = subprocess.run(
        [str(TILEWATCH), "agent", "doctor", "--json"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 3 and "Traceback" not in done.stderr
    checks = {row["name"]: row for row in json.loads(done.stdout)}
    assert checks["torch_npu"]["level"] == "fail" and "pip install torch_npu" in checks["torch_npu"]["fix"]
    assert "set_env.sh" in checks["libascendcl.so"]["fix"] and checks["msprof"]["level"] == "fail"
    assert all(row["fix"] for row in checks.values() if row["level"] != "ok")
    assert "npu agent" not in checks  # what depends on a failure is not tried


def test_the_software_npu_is_recognised_as_a_stand_in(
    npu_python: Path, on_software_npu: Callable[..., Any], tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path, measure_python=npu_python, lock_folder=tmp_path / "locks")
    with on_software_npu():
        checks = found(doctor.diagnose(settings))
    assert checks["npu agent"].level == "warn" and "numbers are simulated" in checks["npu agent"].what
    assert checks["torch_npu"].level == checks["msprof"].level == checks["libopapi.so"].level == "ok"


def test_an_interpreter_that_does_not_run_is_named(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, measure_python=tmp_path / "no-python", lock_folder=tmp_path)
    checks = found(doctor.diagnose(settings))
    assert (
        checks["measure_python"].level == "fail" and "no-python does not run" in checks["measure_python"].what
    )


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("ASCEND_MODULE_LOG_LEVEL", "op=0", "one bad entry voids all of it"),
        ("ASCEND_MODULE_LOG_LEVEL", "OP=0,RUNTIME=1", "one bad entry voids all of it"),
        ("ASCEND_LAUNCH_BLOCKING", "1", "every call waits"),
        ("ASCEND_SLOG_PRINT_TO_STDOUT", "1", "to the screen"),
        ("TASK_QUEUE_ENABLE", "0", "task queue is off"),
        ("LD_PRELOAD", "libx.so", "preloaded"),
    ],
)
def test_variables_that_change_what_is_measured_are_named(variable: str, value: str, said: str) -> None:
    (finding,) = doctor._switches({variable: value})
    assert finding.name == variable and said in finding.what and finding.fix


def test_good_log_levels_and_defaults_need_no_word() -> None:
    assert (
        list(doctor._switches({"ASCEND_MODULE_LOG_LEVEL": "OP=0:RUNTIME=1", "TASK_QUEUE_ENABLE": "1"})) == []
    )


def test_others_on_the_device_and_the_owner_of_the_lock_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "npu-smi"
    command.write_text(TENANT)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    settings = Settings(home=tmp_path, measure_python=tmp_path / "none", lock_folder=tmp_path)
    with locks.held(tmp_path / "npu-npu-910c.lock", "sweep X", lambda owner: None):
        checks = found(doctor.diagnose(settings))
    assert checks["npu-smi"].what == "in use by pid 4711 (python3)"
    assert f"held by pid {os.getpid()} for sweep X" in checks["device lock"].what
