"""The curves behind the experiments, and refinement as the planner asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewatch.tasks.plan.experiment import Experiment, load_experiments
from tilewatch.tasks.predict.calls import DynamicQuantCall, GroupedMatmulCall, QuantMatmulCall
from tilewatch.tasks.predict.environment import cann_version, platform
from tilewatch.tasks.predict.questions.boundaries import refine_axis
from tilewatch.tasks.predict.questions.experiments import curves, refinement

C910 = platform("Ascend910_9391")
CANN = cann_version("9.1.0")


@pytest.fixture(scope="module")
def experiments(repository: Path) -> dict[str, Experiment]:
    return load_experiments(repository / "flows" / "experiments")


def test_a_quantised_linear_has_a_curve_for_each_of_its_two_operators(
    experiments: dict[str, Experiment],
) -> None:
    calls = {curve.call for curve in curves(experiments["B"])}
    assert {
        DynamicQuantCall(1, 4096),
        QuantMatmulCall(1, 4096, 1024),
        QuantMatmulCall(1, 1024, 32768),
    } <= calls


def test_both_formats_of_experiment_c_have_curves(experiments: dict[str, Experiment]) -> None:
    formats = {curve.call.weight_format for curve in curves(experiments["C"])}  # type: ignore[union-attr]
    assert formats == {"ND", "FRACTAL_NZ"}


def test_both_allocation_regimes_of_experiment_d_have_curves(experiments: dict[str, Experiment]) -> None:
    calls = [curve.call for curve in curves(experiments["D"])]
    regimes = {(c.exact_rows, c.hint_m_e) for c in calls if isinstance(c, GroupedMatmulCall)}
    assert regimes == {(False, False), (True, False), (False, True), (True, True)}


def test_refinement_adds_the_boundaries_of_every_operator_of_an_arm(
    experiments: dict[str, Experiment],
) -> None:
    spec = experiments["B"]
    refine = refinement(C910, [CANN])
    case = next(c for c in spec.cases if c.linear == "wq_a")
    arm = next(a for a in spec.arms if a.operation == "quant_matmul")
    first, last = spec.axis.range or (1, 128)
    expected = refine_axis(QuantMatmulCall(1, 4096, 1024), "m", first, last, C910, CANN)
    assert list(refine(spec, case, arm)) == expected


def test_an_arm_without_predictor_adds_nothing(experiments: dict[str, Experiment]) -> None:
    spec = experiments["B"]
    arm = next(a for a in spec.arms if a.operation == "matmul")
    assert list(refinement(C910, [CANN])(spec, spec.cases[0], arm)) == []


def test_a_curve_without_rules_on_the_platform_gets_the_ends_of_its_range(
    experiments: dict[str, Experiment],
) -> None:
    spec = experiments["D"]
    refine = refinement(platform("Ascend950DT_9581"), [CANN])
    assert list(refine(spec, spec.cases[0], spec.arms[0])) == spec.axis.range
