"""Calls, platforms and versions that make no sense are refused with the field and the rule."""

from __future__ import annotations

import pytest

from tilewatch.tasks.predict.calls import (
    ND,
    DynamicQuantCall,
    GroupedMatmulCall,
    OperatorCall,
    QuantMatmulCall,
)
from tilewatch.tasks.predict.environment import cann_version, cann_version_names, platform, platform_names
from tilewatch.tasks.predict.errors import OutOfScope, PredictError
from tilewatch.tasks.predict.predict import predict

C910 = platform("Ascend910_9391")
CANN = cann_version("9.1.0")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (QuantMatmulCall(0, 4096, 1024), r"m: 0: rows must be at least 1"),
        (QuantMatmulCall(-3, 4096, 1024), r"m: -3"),
        (QuantMatmulCall(1, 4090, 1024), r"k: 4090: .*K % 16 == 0 and N % 32 == 0"),
        (QuantMatmulCall(1, 4096, 1040), r"n: 1040: .*K % 16 == 0 and N % 32 == 0"),
        (QuantMatmulCall(1, 4096, 1024, "NC1HWC0"), r"weight_format: 'NC1HWC0'.*ND, FRACTAL_NZ"),
        (QuantMatmulCall(1, 4096, 1024, out_dtype="float64"), r"out_dtype: 'float64'"),
        (QuantMatmulCall(1, 4096, 1024, bias_dtype="int4"), r"bias_dtype: 'int4'"),
        (DynamicQuantCall(16, 0), r"k: 0"),
        (DynamicQuantCall(16, 4096, x_dtype="float32"), r"x_dtype: 'float32'.*bfloat16, float16"),
        (GroupedMatmulCall(16, 4096, 4096, 0), r"groups: 0"),
        (GroupedMatmulCall(16, 4096, 4096, 4, tuning_config=17), r"tuning_config: 17: valid range is \[0, "),
        (GroupedMatmulCall(16, 4096, 4096, 4, group_list_type=3), r"group_list_type: 3.*0, 1, 2"),
        (GroupedMatmulCall(360, 1024, 8191, 16), r"n: 8191"),
    ],
)
def test_a_call_that_makes_no_sense_names_field_and_rule(call: OperatorCall, message: str) -> None:
    with pytest.raises(PredictError, match=message):
        predict(call, C910, CANN)


def test_a_transposed_nz_weight_has_its_rule_the_other_way_round() -> None:
    predict(QuantMatmulCall(16, 4096, 1040, transpose_w=True), C910, CANN)
    with pytest.raises(PredictError, match=r"\[N, K\] needs N % 16 == 0 and K % 32 == 0"):
        predict(QuantMatmulCall(16, 4112, 1024, transpose_w=True), C910, CANN)


def test_an_nd_weight_may_have_any_size() -> None:
    assert predict(QuantMatmulCall(7, 4090, 1041, ND), C910, CANN).block_dim


def test_an_unknown_platform_or_version_lists_the_known_ones() -> None:
    with pytest.raises(PredictError, match="Ascend910_9391"):
        platform("Ascend910_9999")
    with pytest.raises(PredictError, match=r"8\.5\.0, 9\.0\.0, 9\.1\.0, 9\.2\.0-beta"):
        cann_version("10.0.0")


def test_every_listed_platform_predicts_every_operator_or_says_what_is_missing() -> None:
    calls = (
        DynamicQuantCall(16, 4096),
        QuantMatmulCall(16, 4096, 1024),
        GroupedMatmulCall(512, 4096, 4096, 16),
    )
    for name in platform_names():
        for version in cann_version_names():
            for call in calls:
                try:
                    found = predict(call, platform(name), cann_version(version))
                except OutOfScope as error:
                    assert "NpuArch 3510" in str(error) and call.operation == "grouped_matmul"
                else:
                    assert found.block_dim or found.unknown_reason


def test_more_cores_than_the_platform_has_are_refused() -> None:
    with pytest.raises(PredictError, match="cube_cores: 25: Ascend910_9391 has 1 to 24"):
        C910.limited(25)


def test_more_than_one_weight_matrix_is_out_of_scope_not_wrong() -> None:
    with pytest.raises(OutOfScope, match="batch"):
        predict(QuantMatmulCall(16, 4096, 1024, batch=2), C910, CANN)
