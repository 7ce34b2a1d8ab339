"""Every layout of ``npu-smi info`` in the samples, by value."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewatch.tasks.read.host.npu_smi import DeviceState, read_npu_smi

FILES = (
    "22.0.0_310P", "23.0.5", "23.0.rc3_tool_vs_driver", "24.1.rc1", "25.3.rc1_A3", "25.5.0_910B2",
    "25.5.0_910B3_tight_value", "26.0.rc1_910B4",
)  # fmt: skip


def state(shared: Path, name: str) -> DeviceState:
    return read_npu_smi((shared / "samples" / "env" / f"npu-smi_{name}.txt").read_text())


# (npu, chip, name, health, bus id, power W, temperature °C, AI Core %, memory MB, HBM MB) of every chip
CHIPS = {
    "22.0.0_310P": [(0, 0, "310P3", "OK", "0000:5E:00.0", 16.5, 55.0, 0, (931, 21534), (None, None))],
    "23.0.5": [
        (0, 0, "xxx", "OK", "0000:61:00.0", 73.1, 37.0, 0, (920, 13553), (0, 32768)),
        (7, 0, "xxx", "OK", "0000:3D:00.0", 67.0, 38.0, 0, (2346, 15567), (0, 32768)),
    ],
    "23.0.rc3_tool_vs_driver": [
        (0, 0, "xxx", "OK", "0000:C1:00.0", 73.4, 44.0, 0, (4565, 15137), (30710, 32768)),
        (1, 0, "xxx", "OK", "0000:81:00.0", 69.6, 39.0, 0, (4483, 15137), (30710, 32768)),
    ],
    "24.1.rc1": [(7, 0, "xxx", "OK", "0000:3D:00.0", 67.0, 44.0, 0, (2505, 15567), (0, 32768))],
    "25.3.rc1_A3": [
        (0, 0, "Ascend910", "OK", "0000:9D:00.0", 165.4, 37.0, 0, (0, 0), (3173, 65536)),
        (0, 1, "Ascend910", "OK", "0000:9F:00.0", None, 36.0, 0, (0, 0), (2885, 65536)),
        (1, 0, "Ascend910", "OK", "0000:99:00.0", 162.3, 37.0, 0, (0, 0), (3168, 65536)),
    ],
    "25.5.0_910B2": [
        (0, 0, "910B2", "OK", "0000:C1:00.0", 98.4, 37.0, 0, (0, 0), (3431, 65536)),
        (1, 0, "910B2", "OK", "0000:C2:00.0", 94.7, 37.0, 0, (0, 0), (3429, 65536)),
    ],
    "25.5.0_910B3_tight_value": [
        (1, 0, "910B3", "OK", "0000:C2:00.0", 91.3, 37.0, 0, (0, 0), (59048, 65536))
    ],
    "26.0.rc1_910B4": [(0, 0, "910B4", "OK", "0000:C1:00.0", 82.6, 32.0, 0, (0, 0), (2871, 32768))],
}
VERSIONS = {
    "22.0.0_310P": ("22.0.0", "22.0.2"),
    "23.0.5": ("23.0.5", "23.0.5"),
    "23.0.rc3_tool_vs_driver": ("23.0.rc3", "23.0.rc2.3"),
    "24.1.rc1": ("24.1.rc1", "24.1.rc1"),
    "25.3.rc1_A3": ("25.3.rc1", "25.3.rc1"),
    "25.5.0_910B2": ("25.5.0", "25.5.0"),
    "25.5.0_910B3_tight_value": (None, None),
    "26.0.rc1_910B4": ("26.0.rc1", "26.0.rc1"),
}


@pytest.mark.parametrize("name", FILES)
def test_every_chip_of_every_layout_is_read_by_value(shared: Path, name: str) -> None:
    found = state(shared, name)
    assert [
        (
            c.npu_id, c.chip_id, c.name, c.health, c.bus_id, c.power_w, c.temperature_c, c.aicore_percent,
            (c.memory_used_mb, c.memory_total_mb), (c.hbm_used_mb, c.hbm_total_mb),
        )
        for c in found.chips
    ] == CHIPS[name]  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_tool_and_driver_versions_are_told_apart(shared: Path, name: str) -> None:
    found = state(shared, name)
    assert (found.tool_version, found.driver_version) == VERSIONS[name]


def test_the_second_column_is_named_by_the_header(shared: Path) -> None:
    assert [c.phy_id for c in state(shared, "25.3.rc1_A3").chips] == [0, 1, 2]
    assert [c.device for c in state(shared, "22.0.0_310P").chips] == [0]
    assert [c.phy_id for c in state(shared, "25.5.0_910B3_tight_value").chips] == [None]


def test_hugepages_idle_npus_and_a_chip_cut_from_the_print_are_told(shared: Path) -> None:
    cut = state(shared, "23.0.rc3_tool_vs_driver")
    assert (cut.chips[0].hugepages_used, cut.chips[0].hugepages_total) == (1123, 1123)
    assert cut.incomplete_chips == 1
    assert state(shared, "23.0.5").idle_npus == (0, 7)


def test_tenant_processes_are_read() -> None:
    text = """
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       1                 | 4711          | python3                  | 28012                   |
"""
    (tenant,) = read_npu_smi(text).processes
    assert (tenant.npu_id, tenant.chip_id, tenant.pid, tenant.name, tenant.memory_mb) == (
        0, 1, 4711, "python3", 28012,
    )  # fmt: skip


@given(text=st.text(alphabet="| 0123456789/-:.AOKnpusmi\n", max_size=400))
def test_no_text_raises(text: str) -> None:
    read_npu_smi(text)
