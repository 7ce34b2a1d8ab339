"""Version files of the samples → components of a build, by value."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewatch.tasks.plan.build_id import build_id
from tilewatch.tasks.read.host.build_identity import Environment, read_environment

COMPONENTS = {
    "install_info_7.0.RC1.txt": {
        "cann": "7.0.RC1",
        "cann_inner": "V100R001C13SPC005B246",
        "arch": "aarch64",
    },
    "install_info_7.0.T10.txt": {
        "cann": "7.0.T10",
        "cann_inner": "V100R001C13B222",
        "arch": "aarch64",
    },
    "install_info_8.2.RC1.txt": {
        "cann": "8.2.RC1",
        "cann_inner": "V100R001C22SPC001B231",
        "arch": "aarch64",
    },
    "install_info_8.3.RC1.alpha001.txt": {
        "cann": "8.3.RC1.alpha001",
        "cann_inner": "V100R001C23B046",
        "arch": "aarch64",
    },
    "install_info_8.5.0_docs.txt": {
        "cann": "8.5.0",
        "cann_inner": "V100R001C25SPC001B212",
        "arch": "aarch64",
    },
    "install_info_8.5.0_issue.txt": {
        "cann": "8.5.0",
        "cann_inner": "V100R001C25SPC001B232",
        "arch": "aarch64",
    },
    "install_info_9.0.0-beta.1.txt": {
        "cann": "9.0.0-beta.1",
        "cann_inner": "V100R001C10B034",
        "arch": "x86_64",
    },
    "nnae_install_info_8.0.RC3.txt": {
        "nnae": "8.0.RC3",
        "nnae_inner": "V100R001C19SPC001B137",
        "arch": "x86_64",
    },
    "driver_version_info_24.1.rc3.txt": {
        "driver": "24.1.rc3",
        "driver_inner": "V100R001C19SPC001B124",
    },
    "driver_version_info_25.0.rc1.1.txt": {
        "driver": "25.0.rc1.1",
        "driver_inner": "V100R001C21SPC002B220",
    },
    "firmware_version_info_7.7.0.1.231.txt": {
        "firmware": "7.7.0.1.231",
        "firmware_package": "25.0.rc1.1",
    },
    "compiler_version_info_8.2.T2.txt": {
        "package_unnamed": "7.8.T5.0.B028",
        "package_unnamed_timestamp": "20250603_154703350",
        "cann": "8.2.T2",
    },
    "toolkit_version_info_8.2.RC1.txt": {
        "package_unnamed": "8.2.0.0.201",
        "package_unnamed_timestamp": "20250724_194044950",
        "cann": "8.2.RC1",
    },
    "opp_kernel_version_info_8.2.RC1.txt": {
        "package_opp_kernel": "8.2.0.0.201",
        "package_opp_kernel_timestamp": "20250724_194044950",
        "cann": "8.2.RC1",
    },
    "opp_kernel_version_info_8.3.RC1.alpha001.txt": {
        "package_opp_kernel": "8.3.T5.0.B028",
        "package_opp_kernel_timestamp": "20250807_092944934",
        "cann": "8.3.RC1.alpha001",
    },
    "atb_version_info.txt": {
        "atb": "8.0.0",
        "atb_commit": "af0ec2e868267322b4fb7949da3ae7af769d9644",
    },
    "version_cfg_8.0.0.txt": {
        "cann": "8.0.0",
        **{f"package_{p}": "7.6.0.1.220" for p in
           ("runtime", "compiler", "hccl", "opp", "toolkit", "aoe", "ncs", "opp_kernel")},
    },
}  # fmt: skip


def read(shared: Path, *names: str) -> Environment:
    folder = shared / "samples" / "env"
    return read_environment((name, (folder / name).read_text()) for name in names)


@pytest.mark.parametrize("name", sorted(COMPONENTS))
def test_every_version_file_gives_its_components(shared: Path, name: str) -> None:
    found = read(shared, name)
    assert found.identity.components == COMPONENTS[name]
    assert found.unread == ()


def test_two_builds_of_one_version_are_two_builds(shared: Path) -> None:
    docs = read(shared, "install_info_8.5.0_docs.txt").identity
    issue = read(shared, "install_info_8.5.0_issue.txt").identity
    assert docs.cann_version == issue.cann_version == "8.5.0"
    assert docs.build_id != issue.build_id
    assert docs.build_id == build_id(COMPONENTS["install_info_8.5.0_docs.txt"])
    assert docs.label == f"cann8.5.0-{docs.build_id[:6]}"


def test_a_collected_text_is_read_part_by_part(shared: Path) -> None:
    found = read(shared, "driver_firmware_23.0.7_collected_block.txt")
    assert found.identity.components == {
        "cann": "7.0.T10", "cann_inner": "V100R001C13B222",
        "nnae": "8.0.RC3", "nnae_inner": "V100R001C19SPC001B137",
        "driver": "23.0.7", "driver_inner": "V100R001C15SPC012B220",
        "firmware": "7.1.0.11.220", "firmware_package": "23.0.7",
        "torch": "1.11.0",
    }  # fmt: skip
    # toolkit and nnae state different architectures: neither holds
    assert [c.split(":")[0] for c in found.identity.conflicts] == ["arch"]


def test_the_toolkit_outranks_a_package_that_states_another_version() -> None:
    found = read_environment(
        [
            ("cann/share/info/compiler/version.info", "Version=9.2.0\nversion_dir=9.2.0\ntimestamp=1\n"),
            ("ascend_toolkit_install.info", "package_name=Ascend-cann-toolkit\nversion=9.3.0\n"),
        ]
    )
    assert found.identity.cann_version == "9.3.0"
    assert found.identity.components["package_compiler"] == "9.2.0"
    assert len(found.identity.conflicts) == 1


def test_two_toolkits_on_one_host_leave_the_version_open(shared: Path) -> None:
    found = read(shared, "install_info_8.2.RC1.txt", "install_info_9.0.0-beta.1.txt")
    assert found.identity.cann_version is None
    assert found.identity.label == "unknown"
    assert len(found.identity.conflicts) == 3


def test_driver_toolkit_and_smi_print_make_one_identity_and_one_state(shared: Path) -> None:
    found = read(
        shared, "install_info_8.2.RC1.txt", "driver_version_info_25.0.rc1.1.txt", "npu-smi_25.5.0_910B2.txt",
        "innerversions_seen.tsv",
    )  # fmt: skip
    assert found.identity.components["driver"] == "25.0.rc1.1"
    assert found.identity.components["cann"] == "8.2.RC1"
    assert found.device_state is not None and len(found.device_state.chips) == 2
    assert found.unread == ("innerversions_seen.tsv",)


def test_no_files_make_an_unknown_build() -> None:
    found = read_environment([])
    assert (found.identity.build_id, found.identity.label, found.device_state) == ("unknown", "unknown", None)
