"""What an upgrade changes, worst first."""

from __future__ import annotations

import numpy as np
import pytest

from tilewatch.tasks.predict.calls import DynamicQuantCall, GroupedMatmulCall, QuantMatmulCall
from tilewatch.tasks.predict.environment import cann_version, platform
from tilewatch.tasks.predict.errors import OutOfScope
from tilewatch.tasks.predict.questions.experiments import Curve
from tilewatch.tasks.predict.questions.upgrades import changes, upgrade_changes, worst_first

C910 = platform("Ascend910_9391")
V8, V90, V91 = (cann_version(name) for name in ("8.5.0", "9.0.0", "9.1.0"))


def test_dynamic_quant_of_16_rows_loses_12_of_16_cores_from_8_5_to_9_0() -> None:
    found = changes(DynamicQuantCall(1, 4096), "m", np.array([16]), C910, V8, V90)
    cores = next(c for c in found if c.field == "block_dim")
    assert (cores.operator, cores.m, cores.k, cores.n, cores.before, cores.after) == (
        "DynamicQuant", 16, 4096, None, 16, 4
    )  # fmt: skip


def test_9_0_and_9_1_agree_on_dynamic_quant_everywhere() -> None:
    for k in (128, 1024, 2048, 4096, 5120, 7168, 16384, 18432):
        assert changes(DynamicQuantCall(1, k), "m", np.arange(1, 513), C910, V90, V91) == []


def test_the_worst_comes_first_cores_lost_then_keys_then_blocks() -> None:
    rows = np.array([1, 16, 64])
    found = worst_first(
        changes(DynamicQuantCall(1, 1024), "m", rows, C910, V8, V91)
        + changes(QuantMatmulCall(1, 4096, 1024), "m", np.arange(60, 100), C910, V8, V91)
    )
    fields = [change.field for change in found]
    assert (found[0].m, found[0].before, found[0].after) == (16, 16, 1)
    assert fields.index("tiling_key") > fields.index("block_dim")
    severities = [change.severity for change in found]
    assert severities == sorted(severities)


def test_against_an_unknown_tiling_only_the_branch_is_said_to_change() -> None:
    found = changes(QuantMatmulCall(1, 4096, 1024), "m", np.array([16]), C910.limited(22), V90, V91)
    assert [(c.field, c.before, c.after) for c in found] == [("branch", "tbe_optimised", "basic")]


def test_operators_without_rules_on_a_platform_are_left_out_and_named() -> None:
    quant = Curve("A", "standalone", "wq_a", DynamicQuantCall(1, 4096), "m")
    grouped = Curve("D", "int8", "w13", GroupedMatmulCall(9216, 4096, 4096, 16, m_e=1), "m_e")
    rows, a950 = np.array([8, 16]), platform("Ascend950DT_9581")
    found, left_out = upgrade_changes([(quant, rows), (grouped, rows), (grouped, rows)], a950, V8, V91)
    assert {(c.field, c.before, c.after) for c in found} == {("tiling_key", "33", "65")}
    assert left_out == ["soc: grouped_matmul is not restated for NpuArch 3510 (Ascend950DT_9581)"]
    with pytest.raises(OutOfScope, match="grouped_matmul"):
        upgrade_changes([(grouped, rows)], a950, V8, V91)
