"""The fault table of the npu agent: what is kept, what is said, and that the next run is clean."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewatch.tasks.measure.method import default_method, method_hash
from tilewatch.tasks.measure.program import locks
from tilewatch.tasks.measure.run import Outcome, Progress, measure_process
from tilewatch.tasks.read.captures.operator_capture import read_capture

Make = Callable[..., Any]
UNPROFILED = {"amount": {"profiled_calls": 0}}
NPU_SMI = """#!/bin/sh
cat <<'PAGE'
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       0                 | 4711          | python3                  | 2048                    |
PAGE
"""


@pytest.fixture
def measured(
    npu_plan: Make, npu_point: Make, npu_python: Path, on_software_npu: Make, tmp_path: Path
) -> Callable[..., Outcome]:
    """Measures two small points into ``tmp_path``/c with more variables and changes of the plan."""

    def run(
        timeout_s: float = 60,
        on_progress: Callable[[Progress], None] | None = None,
        points: list[Any] | None = None,
        plan: Any = None,
        **env: str,
    ) -> Outcome:
        made = npu_plan(points or [npu_point(1, operation="dynamic_quant"), npu_point(2)], **(plan or {}))
        with on_software_npu(**env):
            return measure_process(
                made, tmp_path / "c", python=str(npu_python), timeout_s=timeout_s, on_progress=on_progress
            )

    return run


@pytest.fixture
def next_run_is_clean(measured: Make, tmp_path: Path) -> Iterator[None]:
    """After the test the same plan is measured again, undisturbed, where nothing complete was left."""
    yield
    if (tmp_path / "c" / "manifest.json").is_file():
        (tmp_path / "c").rename(tmp_path / "kept")
    again = measured(plan=UNPROFILED)
    assert again.status == "complete", f"{again.reason}\n{again.log_tail}"


def statuses(outcome: Outcome) -> dict[str, str]:
    observed = read_capture(outcome.capture_dir, raw_prefix="raw").observed
    return {row["point_id"][-1]: row["status"] for row in observed.to_pylist()}


def kept_samples(outcome: Outcome) -> int:
    rows: int = read_capture(outcome.capture_dir, raw_prefix="raw").samples.num_rows
    return rows


@pytest.mark.usefixtures("next_run_is_clean")
def test_a_failed_kernel_keeps_the_samples_before_it_and_ends_the_process(measured: Make) -> None:
    outcome = measured(SOFTWARE_NPU_FAULT="fail:aclnnQuantMatmulWeightNz:3")
    assert outcome.status == "failed" and outcome.has_manifest
    assert "point 0000000000000002 (quant_matmul)" in outcome.reason and "507015" in outcome.reason
    assert statuses(outcome) == {"1": "measured", "2": "failed"}
    assert kept_samples(outcome) >= 4


def test_an_operator_refused_at_launch_is_reported_by_its_name(measured: Make) -> None:
    outcome = measured(SOFTWARE_NPU_FAULT="refuse:aclnnDynamicQuantV2:0")
    assert outcome.status == "failed" and outcome.has_manifest
    assert "the current working operator name is aclnnDynamicQuantV2" in outcome.reason
    assert "error code is 561103" in (outcome.capture_dir / "stderr.log").read_text()
    assert statuses(outcome) == {"1": "failed", "2": "unmeasured"}


def test_a_lost_device_ends_the_process_and_later_points_are_unmeasured(measured: Make) -> None:
    outcome = measured(SOFTWARE_NPU_FAULT="lost:aclnnDynamicQuantV2:2")
    assert outcome.status == "failed" and outcome.has_manifest and "507899" in outcome.reason
    assert statuses(outcome) == {"1": "failed", "2": "unmeasured"}


def test_out_of_memory_fails_the_point_that_asked_for_too_much(measured: Make, npu_point: Make) -> None:
    large = npu_point(2, k=8192, n=8192)
    points = [npu_point(1, operation="dynamic_quant"), large]
    outcome = measured(points=points, SOFTWARE_NPU_MEMORY_BYTES=str(64 << 20))
    assert outcome.status == "failed" and outcome.has_manifest and "out of memory" in outcome.reason
    assert statuses(outcome) == {"1": "measured", "2": "failed"}


@pytest.mark.usefixtures("next_run_is_clean")
def test_a_hanging_kernel_is_ended_by_the_time_limit_and_leaves_no_capture(measured: Make) -> None:
    outcome = measured(timeout_s=6, SOFTWARE_NPU_FAULT="hang:aclnnQuantMatmulWeightNz:2")
    assert (outcome.status, outcome.has_manifest) == ("timed_out", False)
    assert outcome.reason == "took longer than 6 s"


def test_a_profiler_without_files_fails_the_process_and_keeps_its_samples(measured: Make) -> None:
    outcome = measured(SOFTWARE_NPU_MSPROF="nothing")
    assert outcome.status == "failed" and outcome.has_manifest
    assert "left no kernel_details.csv: is msprof on the PATH?" in outcome.reason
    assert statuses(outcome) == {"1": "measured", "2": "measured"}
    assert kept_samples(outcome) >= 8


def test_a_tiling_process_without_a_log_fails_and_says_where_it_looked(measured: Make) -> None:
    # The switch of the plan wins over the agent's own, as a wrong set_env.sh would.
    plan = {"kind": "tiling", "env": {"ASCEND_PROCESS_LOG_PATH": "/proc/no/such/folder"}}
    outcome = measured(plan=plan)
    assert outcome.status == "failed" and outcome.has_manifest
    assert "no log was written below" in outcome.reason and "is it writable" in outcome.reason


def test_a_device_in_use_is_refused_by_pid_and_measured_where_the_method_allows_it(
    measured: Make, npu_plan: Make, tmp_path: Path
) -> None:
    command = tmp_path / "bin/npu-smi"
    command.parent.mkdir()
    command.write_text(NPU_SMI)
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    outcome = measured(PATH=path)
    assert (outcome.status, outcome.has_manifest) == ("failed", False)
    assert outcome.reason == (
        "the device is in use: pid 4711 (python3) on NPU 0; "
        "wait, or set TILEWATCH_TENANTS=flag to measure beside them"
    )
    flagged = default_method("npu", tenants="flag")
    assert method_hash(flagged) != method_hash(default_method("npu"))  # the two are never compared
    outcome = measured(PATH=path, plan={**UNPROFILED, "method": flagged})
    assert outcome.status == "complete"
    states = json.loads((outcome.capture_dir / "environment.json").read_text())["device_states"]
    assert states["before"]["shared_with"] == "pid 4711 (python3) on NPU 0"
    assert [states[moment]["processes"][0]["pid"] for moment in ("before", "start", "end")] == ["4711"] * 3


def test_throttling_slows_the_samples_and_ends_nothing(measured: Make) -> None:
    assert measured(SOFTWARE_NPU_FAULT="slow:*:5", plan=UNPROFILED).status == "complete"


@pytest.mark.usefixtures("next_run_is_clean")
def test_a_process_killed_at_three_random_moments_leaves_a_whole_capture_or_none(
    measured: Make, tmp_path: Path
) -> None:
    for lot in range(3):
        _killed_at_random(measured, lot, tmp_path)


@pytest.mark.soak
@pytest.mark.usefixtures("next_run_is_clean")
def test_a_process_killed_at_ten_random_moments_leaves_a_whole_capture_or_none(
    measured: Make, tmp_path: Path
) -> None:
    for lot in range(3, 13):
        _killed_at_random(measured, lot, tmp_path)


def _killed_at_random(measured: Make, lot: int, tmp_path: Path) -> None:
    """Kill the measuring process some time after it took the device; the capture of the lot before goes."""
    shutil.rmtree(tmp_path / "c", ignore_errors=True)
    delay_s = random.Random(lot).uniform(0, 4)

    def kill() -> None:
        time.sleep(delay_s)
        for pid in _measuring_children():
            os.kill(pid, signal.SIGKILL)

    killers: list[threading.Thread] = []

    def on_progress(progress: Progress) -> None:
        if not killers:
            killers.append(threading.Thread(target=kill))
            killers[0].start()

    outcome = measured(on_progress=on_progress)
    killers[0].join()
    if not outcome.has_manifest:
        assert (outcome.status, outcome.reason) == ("killed", "killed by SIGKILL")


def _measuring_children() -> list[int]:
    """Processes that this one started to measure."""
    command = ["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())]
    answer = subprocess.run(command, capture_output=True, text=True)
    return [int(line.split()[0]) for line in answer.stdout.splitlines() if "measure/program/main.py" in line]


def test_a_full_disk_is_said_and_leaves_no_capture(
    npu_plan: Make, npu_point: Make, npu_python: Path, on_software_npu: Make, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        with on_software_npu():
            plan = npu_plan([npu_point(1)])
            outcome = measure_process(plan, small / "c", python=str(npu_python), timeout_s=60)
        assert outcome.has_manifest is False and outcome.status == "failed"
        assert os.strerror(errno.ENOSPC) in f"{outcome.reason}\n{outcome.log_tail}"
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_lock_whose_owner_died_is_free_at_once(measured: Make, tmp_path: Path) -> None:
    lock = tmp_path / "npu.lock"
    child = os.fork()
    if child == 0:
        with locks.held(lock, "a plan that dies", lambda owner: None):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert locks.owner_of(lock) is not None  # the message outlives its writer, the lock does not
    waited: list[Any] = []
    outcome = measured(on_progress=lambda p: waited.append(p.waiting_for), plan=UNPROFILED)
    assert outcome.status == "complete" and not any(waited)
