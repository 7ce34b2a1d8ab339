"""Cost categories by type, by name where there is no type, and by shape where only that separates."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tilewatch.tasks.read.kernels.aiv_aic import aiv_aic_ratio
from tilewatch.tasks.read.kernels.kernel_categories import categories, category_rules, other_share


def one(op_type: str | None, name: str = "x", k: int = -1, n: int = -1) -> str:
    found = categories(
        pa.array([op_type], pa.string()), pa.array([name]), np.array([k], np.int64), np.array([n], np.int64)
    )
    return str(found[0])


@pytest.mark.parametrize(
    ("op_type", "category"),
    [
        ("RmsNorm", "norm"),
        ("AddRmsNormDynamicQuantAiCore", "norm"),
        ("SparseAttnSharedkv", "attention"),
        ("FusedInferAttentionScore", "attention"),
        ("_triton_rope", "attention"),
        ("QuantBatchMatmulV3", "dense"),
        ("MatMulCommon", "dense"),
        ("MoeGatingTopKHash", "router"),
        ("MoeDistributeDispatchV3", "dispatch"),
        ("MoeInitRoutingV2", "dispatch"),
        ("GroupedMatmul", "expert"),
        ("_swiglu_quant_kernel_2_mix_aiv", "expert"),
        ("SwiGlu", "expert"),
        ("MoeDistributeCombineV2", "combine"),
        ("hcom_allReduce_", "collective"),
        ("HcPreSinkhorn", "residual"),
        ("AddAiCore", "residual"),
        ("DynamicQuant", "quant"),
        ("TransData", "other"),
        ("SomethingNobodyKnows", "other"),
    ],
)
def test_a_type_has_its_category(op_type: str, category: str) -> None:
    assert one(op_type) == category


@pytest.mark.parametrize(
    ("op_type", "k", "n", "category"),
    [
        ("MatMulV2", 4096, 256, "router"),
        ("MatMulV2", 4096, 512, "dense"),
        ("QuantBatchMatmulV3", 4096, 4096, "expert"),
        ("QuantBatchMatmulV3", 2048, 4096, "expert"),
        ("QuantBatchMatmulV3", 1024, 4096, "dense"),
        ("MatMulV3", 4096, 129280, "other"),
        ("MatMulV3", 4096, 16160, "other"),
        ("TransposeBatchMatMul", 4096, 1024, "dense"),
        ("TransposeBatchMatMul", 512, 128, "attention"),
        ("RmsNorm", 4096, 256, "norm"),
    ],
)
def test_shape_separates_what_the_type_cannot(op_type: str, k: int, n: int, category: str) -> None:
    assert one(op_type, k=k, n=n) == category


def test_without_a_type_the_name_or_its_last_word_decides() -> None:
    assert one(None, "aclnnQuantMatmulWeightNz_QuantBatchMatmulV3_QuantBatchMatmulV3") == "dense"
    assert one(None, "hcom_allReduce__868_0_1") == "collective"
    assert one(None, "trans_TransData_0") == "other"


def test_every_rule_names_a_declared_category() -> None:
    rules = category_rules()
    assert {category for category, _ in rules.patterns} <= set(rules.names)


def test_the_share_of_other_is_a_share_of_time() -> None:
    table = pa.table({"duration_ns": [10, 30], "category": ["other", "dense"]})
    assert other_share(table) == 0.25
    assert other_share(table.slice(0, 0)) is None


def test_only_mix_aic_says_the_ratio_of_vector_to_cube_blocks() -> None:
    rows = [
        ("MIX_AIC", 20, 40),
        ("MIX_AIC", 24, 24),
        ("MIX_AIC", 256, 512),
        ("MIX_AIV", 40, 80),
        ("AI_CORE", 20, 0),
    ]
    rows += [("MIX_AIC", 0, 0), ("MIX_AIC", 20, 0)]
    core, block, mix = zip(*rows, strict=True)
    found = aiv_aic_ratio(pa.array(core), np.array(block), np.array(mix)).to_pylist()
    assert found == ["2:1", "1:1", "2:1", None, None, None, None]
