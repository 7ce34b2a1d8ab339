"""Decision paths, whole sweeps and covered shares."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

from tilewatch.flows.experiments import SHIPPED
from tilewatch.tasks.plan.experiment import load_experiments
from tilewatch.tasks.predict.calls import DynamicQuantCall, GroupedMatmulCall, QuantMatmulCall
from tilewatch.tasks.predict.environment import cann_version, platform
from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.predict.predict import predict
from tilewatch.tasks.predict.questions.coverage import coverage, coverage_rows
from tilewatch.tasks.predict.questions.experiments import Curve, curves
from tilewatch.tasks.predict.questions.explanation import explain
from tilewatch.tasks.predict.questions.sweeps import sweep_table
from tilewatch.tasks.predict.sources import NOT_RECORDED, source_of

C910, A950 = platform("Ascend910_9391"), platform("Ascend950PR_9599")
V91 = cann_version("9.1.0")
WQ_A = Curve("B", "int8", "wq_a", QuantMatmulCall(1, 4096, 1024), "m")
W13 = Curve("D", "int8", "w13", GroupedMatmulCall(9216, 4096, 4096, 16, m_e=1), "m_e")


def path(call: DynamicQuantCall | QuantMatmulCall, cann: str) -> dict[str, str]:
    return {step.step: step.value for step in explain(call, C910, cann_version(cann, "2201"))}


def test_the_path_names_branch_rule_outcome_and_place_of_the_host_code() -> None:
    found = path(DynamicQuantCall(16, 4096), "9.0.0")
    assert (found["branch"], found["block_dim"], found["tiling_key"]) == ("special_last_dim", "4", "100")
    assert found["source file"] == "ops-nn quant/dynamic_quant/op_host/dynamic_quant_tiling.cpp"
    assert found["function"] == "SetSpecialTilingForDs" and found["release"] == "9.0.0, of ops_nn"
    assert "switch dynamic_quant_small_m" in found and "switch quant_matmul_decode" not in found


def test_two_releases_show_at_which_step_the_paths_part() -> None:
    old, new = (path(DynamicQuantCall(16, 4096), name) for name in ("8.5.0", "9.0.1"))
    assert [step for step in old if step in new and old[step] != new[step]][:2] == [
        "release", "switch dynamic_quant_small_m"
    ]  # fmt: skip
    assert "identical in tags v9.0.0 and v9.0.1" in new["proof of the alias"]


def test_a_branch_that_is_not_restated_is_explained_as_far_as_it_is_known() -> None:
    found = path(QuantMatmulCall(2048, 4096, 1024), "9.1.0")
    assert found["branch"] == "basic" and found["function"] == "CheckUseBasic" and "tiling_key" not in found
    assert "Basic template's block choice is not restated" in found["not decided by shape"]


def test_a_place_that_is_not_known_is_said() -> None:
    assert source_of("Unheard", "2201", "x").file == NOT_RECORDED
    assert source_of("DynamicQuantV2", "3510", "full_load").function == NOT_RECORDED


def test_coverage_counts_the_values_of_m_that_have_a_key_and_says_why_the_others_have_none() -> None:
    found = {(c.operator, c.platform, c.first): c for c in coverage([WQ_A, W13], [C910, A950], V91)}
    decode, prefill = found["quant_matmul", C910.name, 1], found["quant_matmul", C910.name, 1025]
    assert (decode.points, decode.predicted, decode.why) == (64, 64, "")
    assert prefill.predicted == 0 and prefill.why.startswith("basic: the Basic template")
    wide = found["quant_matmul", C910.name, 257]
    keys = [predict(QuantMatmulCall(m, 4096, 1024), C910, V91).tiling_key for m in range(257, 1025)]
    assert (wide.points, wide.predicted) == (768, sum(key is not None for key in keys))
    assert "grouped_matmul is not restated for NpuArch 3510" in found["grouped_matmul", A950.name, 1].why


def test_a_share_is_never_rounded_to_all_or_to_none() -> None:
    rare = coverage([WQ_A], [C910], V91, [(1, 4096)])[0]
    assert 0 < rare.predicted < rare.points and rare.share not in ("0 %", "100 %")


def test_an_unknown_release_is_a_row_with_its_reason() -> None:
    (row,) = coverage_rows([WQ_A], [C910], "9.2.0")
    assert row["predicted"] == "0 %" and "no source tree of the release is public" in row["why_not"]


def test_a_sweep_has_a_row_a_value_and_says_where_nothing_is_known() -> None:
    table = sweep_table([WQ_A], [C910], ["9.0.0", "9.1.0"], (1, 300))
    assert table.num_rows == 600 and set(table["evidence"].to_pylist()) == {"predicted"}
    sixteen = table.filter((pc.field("axis_value") == 16) & (pc.field("release") == "9.1.0")).to_pylist()[0]
    expected = predict(QuantMatmulCall(16, 4096, 1024), C910, V91)
    assert (sixteen["tiling_key"], sixteen["block_dim"]) == (expected.tiling_key, expected.block_dim)
    unknown = table.filter(pc.field("tiling_key").is_null())
    assert set(unknown["branch"].to_pylist()) <= {"basic"}


def test_a_sweep_of_an_unknown_release_is_refused() -> None:
    with pytest.raises(PredictError, match="8.5.2 cannot be predicted"):
        sweep_table([WQ_A], [C910], ["8.5.2"], (1, 16))


def test_the_reference_linears_of_every_experiment_are_covered_in_decode_on_the_910c() -> None:
    swept = [curve for spec in load_experiments(SHIPPED).values() for curve in curves(spec)]
    assert all(c.predicted == c.points for c in coverage(swept, [C910], V91, [(1, 64)]))
