"""What the npu agent takes from a host: the card of a device, who is on it, the versions in its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGE = """\
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     Ascend910           | OK            | 165.4       37                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          3173 / 65536         |
+------------------------------------------------------------------------------------------------+
| 0     Ascend910           | OK            | -           36                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 0           0    / 0          2885 / 65536         |
+===========================+===============+====================================================+
| 1     Ascend910           | OK            | 162.3       37                0    / 0             |
| 0     2                   | 0000:99:00.0  | 0           0    / 0          3168 / 65536         |
+===========================+===============+====================================================+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 0       1                 | 4711          | python3                  | 2048                    |
"""


@pytest.fixture
def asked(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """The program's module on a host whose npu-smi prints PAGE; the argument is what CANN may see."""
    command = tmp_path / "npu-smi"
    command.write_text(f"#!/bin/sh\ncat <<'PAGE'\n{PAGE}PAGE\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def module(visible: str) -> Any:
        import npu_environment  # type: ignore[import-not-found]

        monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", visible)
        return npu_environment

    return module


def test_both_dies_of_a_card_are_taken_by_a_process_on_either(asked: Callable[[str], Any]) -> None:
    for visible in ("", "0", "1", "1,2"):
        assert asked(visible).occupied() == "pid 4711 (python3) on NPU 0"


def test_a_process_on_another_card_is_recorded_and_disturbs_nobody(asked: Callable[[str], Any]) -> None:
    module = asked("2")
    assert module.occupied() is None
    state = module.state()
    assert state["card"] == 1 and [tenant["pid"] for tenant in state["processes"]] == ["4711"]


def test_where_the_card_is_not_listed_everybody_on_the_host_counts(asked: Callable[[str], Any]) -> None:
    assert asked("7").card_of(PAGE, 7) is None
    assert asked("7").occupied() == "pid 4711 (python3) on NPU 0"


@pytest.mark.parametrize(
    ("file", "cards"),
    [("npu-smi_25.3.rc1_A3.txt", [0, 0, 1]), ("npu-smi_25.5.0_910B2.txt", [0, 1])],
)
def test_pages_of_real_hosts_give_the_card_of_every_device(
    asked: Callable[[str], Any], shared: Path, file: str, cards: list[int]
) -> None:
    page = (shared / "samples/env" / file).read_text()
    assert [asked("0").card_of(page, device) for device in range(len(cards) + 1)] == [*cards, None]


@pytest.mark.parametrize(
    ("file", "versions"),
    [
        ("driver_version_info_25.0.rc1.1.txt", ["25.0.rc1.1", "V100R001C21SPC002B220"]),
        ("firmware_version_info_7.7.0.1.231.txt", ["7.7.0.1.231"]),
        ("install_info_8.5.0_issue.txt", ["8.5.0", "V100R001C25SPC001B232"]),
        ("version_cfg_8.0.0.txt", ["7.6.0.1.220:8.0.0"]),
    ],
)
def test_version_files_of_real_hosts_name_version_and_inner_build(
    asked: Callable[[str], Any], shared: Path, file: str, versions: list[str]
) -> None:
    text = (shared / "samples/env" / file).read_text()
    stated = asked("0").cann_packages.stated_versions({file: text})
    assert stated[file].split() == versions


COMMON = """\tNPU ID                         : 0
\tAicore Usage Rate(%)           : 0
\tAicore Freq(MHZ)               : 1800
\tAicore curFreq(MHZ)            : 800
\tAicore Count                   : 20
"""


class Properties:
    """Of a 910B3, as torch_npu gives them."""

    cube_core_num, vector_core_num = 20, 40


def test_the_device_class_carries_cores_and_rated_clock_so_that_one_name_hides_no_variants(
    asked: Callable[[str], Any], tmp_path: Path
) -> None:
    module = asked("0")
    (tmp_path / "npu-smi").write_text(
        f"#!/bin/sh\nif [ \"$2\" = -t ]; then cat <<'PAGE'\n{COMMON}PAGE\nelse cat <<'PAGE'\n{PAGE}PAGE\nfi\n"
    )
    assert module.rated_mhz() == 1800
    slower = module.device_class("Ascend910B", Properties(), 1650, None)
    assert (
        module.device_class("Ascend910B", Properties(), 1800, None) == "npu Ascend910B, 20+40 cores, 1800 MHz"
    )
    assert slower == "npu Ascend910B, 20+40 cores, 1650 MHz"


def test_what_a_host_does_not_say_is_left_out_of_the_class(asked: Callable[[str], Any]) -> None:
    assert asked("0").rated_mhz() is None
    assert asked("0").device_class("Ascend910B3", object(), None, None) == "npu Ascend910B3"
