"""Releases: aliases with proof, unknown ones with their reason, and the operator package that decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from tilewatch.tasks.predict.calls import DynamicQuantCall, GroupedMatmulCall, QuantMatmulCall
from tilewatch.tasks.predict.environment import CannVersion, alias_names, cann_version, platform, release
from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.predict.golden import produced
from tilewatch.tasks.predict.golden.check import check_files
from tilewatch.tasks.predict.predict import predict
from tilewatch.tasks.predict.questions.for_points import point_predictions
from tilewatch.tasks.predict.questions.releases import Releases
from tilewatch.tasks.predict.questions.targets import targets, unpredicted

C910, A950 = platform("Ascend910_9391"), platform("Ascend950PR_9599")
QUANT, DENSE = DynamicQuantCall(16, 4096), QuantMatmulCall(16, 4096, 1024)
GROUPED = GroupedMatmulCall(9216, 4096, 4096, 16, m_e=64)


def runs(
    *builds: tuple[str, Mapping[str, str]], device: str = "npu Ascend910_9391", agent: str = "npu"
) -> pa.Table:
    return pa.table(
        {
            "build": [build for build, _ in builds],
            "device_class": [device] * len(builds),
            "agent": [agent] * len(builds),
            "build_components": pa.array(
                [list(parts.items()) for _, parts in builds], pa.map_(pa.string(), pa.string())
            ),
        }
    )


def test_every_alias_predicts_what_its_twin_predicts_and_says_how_that_is_known() -> None:
    assert alias_names() == ("9.0.1", "9.2.0-beta.1")
    for name, twin in (("9.0.1", "9.0.0"), ("9.2.0-beta.1", "9.1.0")):
        found = release(name, "2201")
        assert set(found.proof) == {"ops_nn", "ops_transformer"} and found.code.name == name
        for call in (QUANT, DENSE, GROUPED):
            assert predict(call, C910, found.code) == predict(call, C910, cann_version(twin))


def test_every_spelling_of_a_beta_is_the_same_release() -> None:
    assert cann_version("9.2.0.beta2") == cann_version("9.2.0-beta.2") == cann_version("9.2.0-beta2")


def test_an_alias_that_holds_on_one_architecture_is_unknown_on_the_other_with_the_reason() -> None:
    with pytest.raises(PredictError, match="lacks 3304fcee9"):
        cann_version("9.2.0-beta.1", A950.npu_arch)
    with pytest.raises(PredictError, match="9.2.0-beta.1 cannot be predicted"):
        cann_version("9.2.0-beta.1")


@pytest.mark.parametrize(
    ("text", "why"),
    [("8.5.1", "no source tree of it could be compared"), ("9.2.0", "no source tree of the release"),
     ("10.0.0", "is unknown; known: 8.5.0, 9.0.0, 9.1.0, 9.2.0-beta.2, 9.0.1")],
)  # fmt: skip
def test_a_release_that_cannot_be_predicted_says_why(text: str, why: str) -> None:
    with pytest.raises(PredictError, match=why):
        cann_version(text, "2201")


def test_a_mix_takes_each_operators_code_from_its_package() -> None:
    mixed = cann_version("9.0.0,ops_transformer=8.5.0")
    assert predict(DENSE, C910, mixed) == predict(DENSE, C910, cann_version("9.0.0"))
    assert predict(GROUPED, C910, mixed) == predict(GROUPED, C910, cann_version("8.5.0"))
    assert mixed.name == "9.0.0,ops_transformer=8.5.0"


def test_a_mix_of_an_unknown_package_names_those_that_there_are() -> None:
    with pytest.raises(PredictError, match="ops_nn=RELEASE or ops_transformer=RELEASE"):
        cann_version("9.0.0,opbase=9.1.0")


def test_the_operator_package_decides_and_cann_is_the_fall_back() -> None:
    mixed = Releases.of_components({"cann": "8.5.0", "ops_nn": "9.1.0"})
    assert (mixed.of(QUANT, C910).package, mixed.of(QUANT, C910).code.name) == ("ops_nn", "9.1.0")
    grouped = mixed.of(GROUPED, C910)
    assert (grouped.package, grouped.code.name) == ("cann", "8.5.0")
    assert grouped.note == "the version of ops_transformer is not stated: CANN's stands for it"


def test_a_release_by_hand_is_flagged_with_what_the_build_states() -> None:
    found = Releases.of_components({"cann": "9.2.0"}, "9.1.0").of(QUANT, C910)
    assert (found.package, found.code.name) == ("asked", "9.1.0")
    assert found.note == "by hand, as 9.1.0; the build states 9.2.0"


def test_point_predictions_say_whose_release_was_used() -> None:
    point = {
        "experiment": "A", "arm": "standalone", "point_id": "p", "operator": "dynamic_quant", "m": 16,
        "k": 4096, "dtype_x": "bfloat16", "dtype_w": None,
    }  # fmt: skip
    stated = Releases.of_components({"cann": "8.5.0", "ops_nn": "9.0.1"})
    (row,) = point_predictions(pa.Table.from_pylist([point]), C910, stated).to_pylist()
    assert (row["cann_version"], row["release_of"]) == ("9.0.1", "ops_nn")
    assert "identical in tags v9.0.0 and v9.0.1" in row["release_note"]


def test_a_build_of_an_unknown_release_is_said_and_not_dropped() -> None:
    table = runs(("new", {"cann": "9.2.0"}), ("known", {"cann": "9.1.0"}))
    assert [target.build for target in targets(table)] == ["known"]
    (said,) = unpredicted(table)
    assert said == "build new: cann: 9.2.0 cannot be predicted: no source tree of the release is public"
    assert [target.build for target in targets(table, "9.1.0")] == ["known", "new"]


def test_one_unknown_operator_package_leaves_the_other_predicted() -> None:
    table = runs(("mixed", {"cann": "9.1.0", "ops_nn": "9.1.0", "ops_transformer": "9.2.0"}))
    (target,) = targets(table)
    assert target.releases.of(DENSE, C910).code.name == "9.1.0"
    assert len(unpredicted(table)) == 1


def test_an_unknown_device_is_said_and_a_cpu_needs_no_prediction() -> None:
    assert unpredicted(runs(("b", {"cann": "9.1.0"}), device="npu Ascend777")) == [
        "build b: no SoC of the platform table is named npu Ascend777"
    ]
    assert unpredicted(runs(("b", {"torch": "2.13.0"}), device="cpu", agent="cpu")) == []


@pytest.mark.parametrize("file", ["golden_dq_910_93.csv.gz", "golden_qbmm_910_93.csv.gz"])
def test_golden_vectors_of_a_twin_agree_under_its_alias(
    shared: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = produced.cann_version, Counter[str]()

    def aliased(name: str) -> CannVersion:
        other = {"9.0.0": "9.0.1", "9.1.0": "9.2.0-beta.1"}.get(name, name)
        asked[other] += 1
        return real(other, "2201")

    monkeypatch.setattr(produced, "cann_version", aliased)
    (result,) = check_files([shared / "vectors/tiling" / file])
    assert len(result.covered) > 1000 and result.disagreeing_rows == 0
    assert asked["9.0.1"] > 100 and asked["9.2.0-beta.1"] > 100
