"""The npu agent names mock CANN trees on the real torch_npu: versions it is told, libraries it hashes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.builds.trees import cann_tree, library
from tilewatch.infra.builds import present_build
from tilewatch.infra.settings import Settings
from tilewatch.tasks.builds.changes import changed_components
from tilewatch.tasks.measure.run import Description, describe

OnNpu = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def describes(npu_python: Path, on_software_npu: OnNpu) -> Callable[..., Description]:
    """What the agent says with a tree as its CANN."""

    def of(tree: Path, **variables: str) -> Description:
        opp = str(tree / "opp")
        with on_software_npu(ASCEND_HOME_PATH=str(tree), ASCEND_OPP_PATH=opp, **variables):
            return describe(str(npu_python), "npu")

    return of


def test_an_operator_package_beside_an_unchanged_cann_makes_another_build(
    describes: Callable[..., Description], tmp_path: Path
) -> None:
    plain = describes(cann_tree(tmp_path / "a", "9.1.0"))
    mixed = describes(cann_tree(tmp_path / "b", "9.1.0", {"ops_transformer": "9.2.0-beta.2"}))
    answered = ("cann", "ops_nn", "ops_transformer", "ops_legacy", "opbase", "runtime")
    assert [plain.components[name] for name in answered] == ["9.1.0"] * 6
    assert mixed.components["cann"] == "9.1.0" and mixed.components["ops_transformer"] == "9.2.0-beta.2"
    assert plain.build_id != mixed.build_id
    assert changed_components(plain.components, mixed.components) == [
        "ops_transformer: 9.1.0 -> 9.2.0-beta.2"
    ]


def test_a_beta_is_one_release_in_torch_npus_spelling_and_in_the_version_file(
    describes: Callable[..., Description], npu_python: Path, on_software_npu: OnNpu, tmp_path: Path
) -> None:
    tree = cann_tree(tmp_path / "cann", "9.2.0-beta.2")
    assert describes(tree).components["cann"] == "9.2.0.beta2"
    settings = Settings(home=tmp_path / "home", measure_python=npu_python)
    with on_software_npu(ASCEND_HOME_PATH=str(tree), ASCEND_OPP_PATH=str(tree / "opp")):
        assert present_build(settings, "npu").cann == "9.2.0-beta.2"


def test_a_swapped_host_library_is_another_build_although_every_version_stays(
    describes: Callable[..., Description], tmp_path: Path
) -> None:
    tree = cann_tree(tmp_path, "9.1.0")
    before = describes(tree)
    library(tree, "ops_transformer", "built from source")
    after = describes(tree)
    (said,) = changed_components(before.components, after.components)
    assert said.startswith("ops_transformer: still 9.1.0, but host_library libophost_transformer.so ")
    assert before.build_id != after.build_id


def test_the_agent_survives_a_package_name_that_kills_the_asking_process(
    describes: Callable[..., Description], tmp_path: Path
) -> None:
    tree = cann_tree(tmp_path, "9.1.0")
    found = describes(tree, SOFTWARE_NPU_DIES_OF="ops_legacy").components
    assert "ops_legacy" not in found and found["opbase"] == found["runtime"] == "9.1.0"
