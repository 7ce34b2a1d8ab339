"""What an upgrade is predicted by: operator packages apart from CANN, and releases that nobody knows yet."""

from __future__ import annotations

import pytest

from tilewatch.flows.cann_upgrade import versions, versions_or_reason
from tilewatch.flows.experiments import SHIPPED
from tilewatch.flows.steps.requests import SweepRequest, UpgradeRequest
from tilewatch.tasks.plan.experiment import load_experiments
from tilewatch.tasks.predict.environment import cann_version, platform
from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.predict.questions.experiments import axis_list, curves
from tilewatch.tasks.predict.questions.upgrades import upgrade_changes


def asked(old: str, new: str, soc: str = "Ascend950PR_9599", found: str = "f" * 16) -> UpgradeRequest:
    return UpgradeRequest(
        sweep=SweepRequest(experiments=("B",), soc=soc), old_cann=old, new_cann=new, new_build_id=found
    )


def test_one_swapped_operator_package_changes_what_is_predicted_although_cann_stays() -> None:
    both = versions(asked("9.1.0", "9.1.0,ops_nn=9.2.0-beta.2"))
    assert both is not None and [code.name for code in both] == ["9.1.0", "9.1.0,ops_nn=9.2.0-beta.2"]
    spec = load_experiments(SHIPPED)["B"]
    swept = [(curve, axis_list(spec)) for curve in curves(spec)]
    changed, _ = upgrade_changes(swept, platform("Ascend950PR_9599"), *both)
    whole, _ = upgrade_changes(
        swept, platform("Ascend950PR_9599"), cann_version("9.1.0"), cann_version("9.2.0-beta.2")
    )
    assert len(changed) == len(whole) > 0


def test_a_swapped_package_of_other_operators_changes_nothing_of_these() -> None:
    both = versions(asked("9.1.0", "9.1.0,ops_transformer=9.2.0-beta.2"))
    assert both is not None
    spec = load_experiments(SHIPPED)["B"]
    swept = [(curve, axis_list(spec)) for curve in curves(spec)]
    assert upgrade_changes(swept, platform("Ascend950PR_9599"), *both)[0] == []


def test_a_build_of_an_unknown_release_that_an_agent_found_is_swept_unpredicted_with_the_reason() -> None:
    both, reason = versions_or_reason(asked("9.1.0", "9.2.0"))
    assert both is None and reason.startswith("not predicted: cann: 9.2.0 cannot be predicted")


def test_an_unknown_release_that_somebody_typed_is_refused() -> None:
    with pytest.raises(PredictError, match="'9.9.9' is unknown"):
        versions_or_reason(asked("9.1.0", "9.9.9", found=""))
