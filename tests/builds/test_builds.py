"""Identity of mock CANN trees: versions, mixes and changes in words, by both readers of version files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builds.trees import RELEASES, cann_tree, custom_package, library
from tilewatch.tasks.builds.changes import changed_components
from tilewatch.tasks.builds.packages import mixes, package_versions, release_text, releases
from tilewatch.tasks.ingest.captures import ingest_path
from tilewatch.tasks.measure.run import PROGRAM
from tilewatch.tasks.plan.build_id import build_id
from tilewatch.tasks.read.host.build_identity import BuildIdentity, read_environment

Components = Callable[[Path], dict[str, str]]


@pytest.fixture
def components(monkeypatch: pytest.MonkeyPatch) -> Components:
    """What the measuring program finds in a tree, without what only torch_npu answers."""
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    import cann_packages  # type: ignore[import-not-found]

    def of(root: Path) -> dict[str, str]:
        for variable in ("ASCEND_TOOLKIT_HOME", "ASCEND_CUSTOM_OPP_PATH"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("ASCEND_HOME_PATH", str(root))
        monkeypatch.setenv("ASCEND_OPP_PATH", str(root / "opp"))
        return {
            **cann_packages.stated_versions(cann_packages.version_files()),
            **cann_packages.host_libraries(),
            **cann_packages.custom_packages(),
        }

    return of


def read(root: Path) -> BuildIdentity:
    files = sorted(path for path in root.rglob("*.info") if path.is_file())
    return read_environment((p.relative_to(root).as_posix(), p.read_text()) for p in files).identity


@pytest.mark.parametrize("release", RELEASES)
def test_a_plain_tree_of_every_layout_has_its_release_and_no_mix(
    components: Components, tmp_path: Path, release: str
) -> None:
    found = components(cann_tree(tmp_path, release))
    assert release_text(found) == release and mixes(found) == []
    assert len([name for name in found if name.startswith("host_library ")]) == 2
    assert read(tmp_path).label.startswith(f"cann{release}-")


def test_an_operator_package_of_another_release_is_a_mix_with_a_label_of_its_own(
    components: Components, tmp_path: Path
) -> None:
    cann_tree(tmp_path, "9.1.0", {"ops_transformer": "9.2.0-beta.2"})
    found = components(tmp_path)
    assert releases(found) == {"cann": "9.1.0", "ops_nn": "9.1.0", "ops_transformer": "9.2.0-beta.2"}
    assert release_text(found) == "9.1.0,ops_transformer=9.2.0-beta.2"
    assert mixes(found) == [
        "ops_transformer 9.2.0-beta.2 on CANN 9.1.0: operators and base are of different releases, so their "
        "host tiling is that of ops_transformer 9.2.0-beta.2"
    ]
    assert read(tmp_path).label.startswith("cann9.1.0-ops_transformer9.2.0-beta.2-")


def test_a_swapped_operator_package_is_another_build_and_one_change(
    components: Components, tmp_path: Path
) -> None:
    before = components(cann_tree(tmp_path, "9.1.0"))
    after = components(cann_tree(tmp_path, "9.1.0", {"ops_transformer": "9.2.0-beta.2"}))
    assert build_id(before) != build_id(after)
    assert changed_components(before, after) == ["ops_transformer: 9.1.0 -> 9.2.0-beta.2"]


def test_a_swapped_library_without_a_version_change_is_another_build_and_said(
    components: Components, tmp_path: Path
) -> None:
    before = components(cann_tree(tmp_path, "9.1.0"))
    library(tmp_path, "ops_nn", "built from source at another commit")
    after = components(tmp_path)
    assert build_id(before) != build_id(after)
    (said,) = changed_components(before, after)
    assert said.startswith("ops_nn: still 9.1.0, but host_library libophost_nn.so ")


def test_a_package_installed_again_at_another_time_is_another_build(
    components: Components, tmp_path: Path
) -> None:
    before = components(cann_tree(tmp_path, "9.1.0"))
    file = tmp_path / "share/info/ops_nn/version.info"
    file.write_text(file.read_text().replace("20260801", "20260918"))
    (said,) = changed_components(before, components(tmp_path))
    assert said == (
        "ops_nn: still 9.1.0, but share/info/ops_nn/version.info timestamp 20260801_101010 -> 20260918_101010"
    )


def test_an_upgrade_of_all_of_cann_is_one_change(components: Components, tmp_path: Path) -> None:
    before = components(cann_tree(tmp_path / "a", "9.0.0"))
    after = components(cann_tree(tmp_path / "b", "9.1.0"))
    assert changed_components(before, after) == ["cann: 9.0.0 -> 9.1.0 (with 5 packages)"]


def test_custom_operator_packages_are_part_of_the_build_by_their_bytes(
    components: Components, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = cann_tree(tmp_path / "cann", "9.1.0")
    plain = components(root)
    custom_package(root / "opp/vendors/vllm-ascend", "code a")
    (root / "opp/vendors/config.ini").write_text("load_priority=vllm-ascend\n")
    installed = components(root)
    assert installed["custom_ops vllm-ascend"].startswith("9.2.0-beta.2 ")
    assert installed["custom_ops priority"] == "vllm-ascend"
    custom_package(root / "opp/vendors/vllm-ascend", "code b")
    changed = components(root)
    assert len({build_id(found) for found in (plain, installed, changed)}) == 3
    (said,) = changed_components(installed, changed)
    assert said.startswith("custom_ops vllm-ascend: 9.2.0-beta.2 ")


def test_a_custom_path_counts_like_an_installed_vendor(
    components: Components, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = cann_tree(tmp_path / "cann", "9.1.0")
    components(root)
    import cann_packages

    custom_package(tmp_path / "elsewhere/vendors/mine", "code")
    monkeypatch.setenv("ASCEND_CUSTOM_OPP_PATH", str(tmp_path / "elsewhere/vendors/mine"))
    assert list(cann_packages.custom_packages()) == ["custom_ops mine"]


def test_both_vocabularies_name_the_same_packages(components: Components, tmp_path: Path) -> None:
    cann_tree(tmp_path, "9.1.0", {"ops_nn": "9.2.0-beta.2"})
    ours, theirs = package_versions(components(tmp_path)), package_versions(read(tmp_path).components)
    wanted = {"ops_nn": "9.2.0-beta.2", "ops_transformer": "9.1.0", "ops_legacy": "9.1.0", "opbase": "9.1.0"}
    assert wanted.items() <= ours.items() and wanted.items() <= theirs.items()


def test_a_program_that_dies_of_an_unknown_name_still_gets_the_other_answers(components: Components) -> None:
    import os

    import cann_packages

    known = {"ops_nn": "9.1.0", "runtime": "9.1.0"}

    def ask(name: str) -> str:
        if name == "ops_transformer":
            os._exit(134)  # as an abort in a library does
        return known[name]

    assert cann_packages.answered_versions(ask) == known


def test_two_trees_that_differ_in_one_operator_package_are_ingested_as_two_builds(
    shared: Path, tmp_path: Path
) -> None:
    found = {}
    for case in sorted((shared / "cases/cann_trees").iterdir()):
        (capture,) = ingest_path(case, tmp_path / case.name).captures
        found[case.name] = capture.build
    assert found["cann_9.1_ops_9.1"].startswith("cann9.1.0-")
    assert found["cann_9.1_ops_transformer_9.2"].startswith("cann9.1.0-ops_transformer9.2.0-beta.2-")
    sides = [read(case).components for case in sorted((shared / "cases/cann_trees").iterdir())]
    assert changed_components(*sides) == ["ops_transformer: 9.1.0 -> 9.2.0-beta.2"]
