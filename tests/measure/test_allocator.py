"""An operator has one speed, whatever its process allocated before: freed memory stays with the process."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = """
import resource, sys
sys.path.insert(0, sys.argv[1])
import machine
if sys.argv[2] == "kept":
    assert machine.keep_freed_memory()
import torch
x = torch.zeros(4 << 20, dtype=torch.uint8)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(30):
    x.clone()
before = faults()
for _ in range(100):
    x.clone()
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is settled on glibc only")
def test_a_result_of_some_megabytes_costs_no_page_faults_once_it_was_allocated(program: Path) -> None:
    def faults(how: str) -> int:
        command = [sys.executable, "-c", FAULTS, str(program), how]
        environment = {"MALLOC_MMAP_THRESHOLD_": "131072"} if how == "default" else {}
        answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return int(answer.stdout)

    assert faults("default") > 1000, "where every result is a fresh mapping there is nothing to settle"
    assert faults("kept") < 100
