"""The reference server's linears and experts through the real torch_npu."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.npu.conftest import Run
from tilewatch.tasks.measure.run import PROGRAM

SCRIPT = Path(__file__).with_name("server_on_npu.py")
FOLDERS = (PROGRAM.parent, PROGRAM.parents[1] / "reference_server")


def test_torch_npu_gives_every_arm_the_tokens_and_formats_of_the_reference_kernels(on_npu: Run) -> None:
    """The driver's products are written in C++ and know nothing of the reference kernels."""
    command = [sys.executable, str(SCRIPT), *map(str, FOLDERS), "cpu"]
    on_cpu = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    done = on_npu(SCRIPT, *FOLDERS, "npu")
    assert done.returncode == 0, done.stderr[-2000:]
    (cpu, npu) = (json.loads(text.splitlines()[-1]) for text in (on_cpu.stdout, done.stdout))
    assert (cpu["evidence"], npu["evidence"]) == ("measured", "simulated")
    assert npu["arms"] == cpu["arms"]
    assert [npu["arms"][arm]["formats"] for arm in ("w8a8_nz", "w8a8_nd", "bf16")] == [[29], [2], [29]]
    assert npu["arms"]["w8a8_nz"]["tokens"] == npu["arms"]["w8a8_nd"]["tokens"]
