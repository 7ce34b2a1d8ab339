"""QuantMatmul on the 950: both templates, windows, full load and the tail split."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.predict.oracle_sliding_window import Call, tiling
from tilewatch.tasks.predict.calls import ND, NZ, QuantMatmulCall
from tilewatch.tasks.predict.environment import cann_version, platform
from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.predict.predict import predict

A950 = platform("Ascend950DT_9581")
BIAS_BYTES = {None: 0, "bfloat16": 2, "float32": 4, "int32": 4}


@pytest.mark.parametrize(
    ("m", "cores", "base", "tail"),
    [
        (15, 32, (16, 256, 128), 8),
        (16, 32, (16, 128, 128), 4),
        (17, 32, (16, 128, 128), 2),
        (33, 24, (16, 128, 128), 1),
    ],
)
def test_the_tensor_api_template_tiles_15_and_16_rows_differently(
    m: int, cores: int, base: tuple[int, int, int], tail: int
) -> None:
    found = predict(QuantMatmulCall(m, 4096, 1024), A950, cann_version("9.2.0-beta.2"))
    assert (found.block_dim, found.base_m, found.base_n, found.base_k) == (cores, *base)
    assert (found.tiling_key, found.fields["nTailTile"]) == ("131600", tail)


def test_without_the_tensor_api_nz_falls_to_the_sliding_window() -> None:
    version = cann_version("9.2.0-beta.2").without_tensor_api()
    found = predict(QuantMatmulCall(16, 4096, 1024), A950, version)
    assert (found.branch, found.tiling_key) == ("mix_asw_full_load_a", "768")
    assert predict(QuantMatmulCall(16, 4096, 1024), A950, cann_version("9.1.0")).tiling_key == "768"


def test_between_49_and_64_rows_the_sliding_window_uses_eight_of_32_cores() -> None:
    found = predict(QuantMatmulCall(64, 4096, 1024, ND), A950, cann_version("9.1.0"))
    assert (found.block_dim, found.base_m, found.aiv_aic_ratio, found.stream_k) == (8, 64, "2:1", False)


def test_cache_words_exist_in_the_newest_tiling_data_only() -> None:
    words = [
        "l2CacheDisable" in predict(QuantMatmulCall(16, 4096, 1024, ND), A950, cann_version(v)).fields
        for v in ("9.1.0", "9.2.0-beta.2")
    ]
    assert words == [False, True]


def test_tiling_fails_where_a_cube_core_has_not_two_vector_cores() -> None:
    with pytest.raises(PredictError, match="1:2"):
        predict(QuantMatmulCall(16, 4096, 1024), A950.limited(16, 64), cann_version("9.1.0"))


def random_call(random: Random) -> tuple[QuantMatmulCall, int, bool]:
    nz = random.random() < 0.5
    m = random.choice([random.randint(1, 256), random.randint(1, 4000)])
    k, n = random.randint(1, 10000), random.randint(1, 30000)
    k = max(128, k // 128 * 128) if random.random() < 0.6 else k
    n = max(128, n // 128 * 128) if random.random() < 0.6 else n
    if nz:
        k, n = max(32, k // 32 * 32), max(32, n // 32 * 32)
    call = QuantMatmulCall(
        m, k, n, NZ if nz else ND,
        transpose_x=random.random() < 0.25, transpose_w=random.random() < 0.5,
        scale_dtype=random.choice(["bfloat16", "float32"]),
        bias_dtype=random.choice([None, None, "bfloat16", "float32", "int32"]),
    )  # fmt: skip
    return call, random.choice([32, 28, 36, 8, 4]), random.random() < 0.6


def test_the_rules_read_one_shape_at_a_time_give_the_same() -> None:
    random = Random(5)
    for _ in range(1500):
        call, cores, offered = random_call(random)
        api = offered and call.weight_format == NZ and not call.transpose_x and call.bias_dtype != "int32"
        version = cann_version("9.2.0-beta.2")
        chip = replace(A950, cube_cores=cores, vector_cores=2 * cores)
        found = predict(call, chip, version if offered else version.without_tensor_api())
        expected = tiling(
            Call(
                call.m, call.k, call.n, call.weight_format == NZ, call.transpose_x, call.transpose_w, cores,
                api, BIAS_BYTES[call.bias_dtype], BIAS_BYTES[call.scale_dtype],
            )
        )  # fmt: skip
        columns = {name: getattr(found, name) for name in expected if hasattr(found, name)}
        columns["tiling_key"] = int(found.tiling_key or -1)
        assert {name: columns.get(name, found.fields.get(name)) for name in expected} == expected, call
