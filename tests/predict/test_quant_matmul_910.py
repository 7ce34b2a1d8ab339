"""QuantMatmul on the 910: template, block search, decode rule, and what is unknown."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tasks.predict.calls import ND, NZ, QuantMatmulCall
from tasks.predict.environment import cann_version, platform
from tasks.predict.predict import predict, predict_axis
from tasks.predict.quant_matmul_dav_2201_problem import Problem, Result
from tasks.predict.quant_matmul_dav_2201_search import search
from tests.predict import oracle_block_search as oracle
from tests.predict import oracle_small_m

C910 = platform("Ascend910_9391")
CANN = cann_version("9.1.0")


def blocks(k: int, n: int, ms: list[int]) -> list[tuple[int, ...]]:
    found = predict_axis(QuantMatmulCall(1, k, n), "m", np.array(ms), C910, CANN)
    names = ("block_dim", "tiling_key", "base_m", "base_n", "base_k")
    return [tuple(int(found.columns[name][i]) for name in names) for i in range(len(ms))]


def test_wq_a_loses_half_its_cores_at_95_and_96_rows_only() -> None:
    assert blocks(4096, 1024, [94, 95, 96, 97]) == [
        (16, 24, 64, 128, 256), (8, 24, 96, 128, 256), (8, 24, 96, 128, 256), (16, 24, 64, 128, 256)
    ]  # fmt: skip


def test_wq_b_keeps_22_cores_to_128_rows_and_24_above() -> None:
    assert blocks(1024, 32768, [1, 17, 64, 128, 129]) == [
        (22, 24, 16, 256, 128), (22, 24, 32, 512, 64), (22, 24, 64, 512, 64), (22, 24, 128, 256, 128),
        (24, 24, 144, 128, 128),
    ]  # fmt: skip


def test_the_decode_rule_came_after_cann_8_5() -> None:
    call = QuantMatmulCall(80, 4096, 1024)
    keys = [predict(call, C910, cann_version(v)).tiling_key for v in ("8.5.0", "9.0.0", "9.1.0")]
    assert keys == ["16", "24", "24"]


def test_nd_weights_have_no_decode_rule_unless_transposed() -> None:
    plain = predict(QuantMatmulCall(80, 4096, 1024, ND), C910, CANN)
    transposed = predict(QuantMatmulCall(80, 4096, 1024, ND, transpose_w=True), C910, CANN)
    assert (plain.tiling_key, transposed.tiling_key) == ("16", "25")


def test_limited_cores_make_the_record_unknown_and_say_what_would_decide() -> None:
    found = predict(QuantMatmulCall(16, 4096, 1024), C910.limited(22), CANN)
    assert (found.branch, found.tiling_key, found.block_dim) == ("basic", None, None)
    assert found.unknown_reason is not None and "tiling log" in found.unknown_reason
    assert (
        predict(QuantMatmulCall(16, 4096, 1024), C910.limited(22), cann_version("9.0.0")).tiling_key == "24"
    )


def test_above_256_rows_the_template_is_undecided_except_for_small_matrices() -> None:
    assert predict(QuantMatmulCall(257, 4096, 2048), C910, CANN).branch == "basic_or_tbe"
    assert predict(QuantMatmulCall(257, 4096, 1024), C910, CANN).branch == "tbe"


def test_every_record_says_that_tuning_banks_can_override_it() -> None:
    assert "tuning bank" in (predict(QuantMatmulCall(16, 4096, 1024), C910, CANN).unknown_reason or "")


def test_a_floating_point_bias_leaves_the_unified_buffer_open_where_it_would_matter() -> None:
    narrow = predict(QuantMatmulCall(16, 4096, 1024, bias_dtype="bfloat16"), C910, CANN)
    wide = predict(QuantMatmulCall(32, 6912, 11264, bias_dtype="bfloat16"), C910, CANN)
    plain = predict(QuantMatmulCall(32, 6912, 11264, bias_dtype="int32"), C910, CANN)
    assert "ubCalcM" in narrow.fields and "ubCalcM" not in wide.fields and plain.fields["ubCalcM"] == 15
    assert "ubCalcM is absent" in (wide.unknown_reason or "")
    assert "ubCalcM" not in (plain.unknown_reason or "")


def test_beyond_fifty_mebibytes_the_single_core_block_is_absent_and_the_record_says_so() -> None:
    found = predict(QuantMatmulCall(256, 1536, 65536, ND, transpose_w=True), C910, CANN)
    assert (found.branch, found.tiling_key, found.fields["realSingleCoreN"]) == ("tbe", "17", 5472)
    assert "singleCoreM" not in found.fields and "50 MiB" in (found.unknown_reason or "")


def test_few_rows_of_a_deep_matrix_take_the_basic_template_on_910b_only() -> None:
    call = QuantMatmulCall(16, 13056, 2048)
    found = predict(call, platform("Ascend910B2"), CANN)
    assert (found.branch, found.tiling_key) == ("basic", None)
    assert "13000 ≤ K ≤ 18944" in found.rule
    assert predict(call, C910, CANN).branch.startswith("tbe")


def test_stream_k_is_never_predicted_for_per_token_scales() -> None:
    assert predict(QuantMatmulCall(1, 4096, 1024), C910, CANN).stream_k is False


def test_l2_size_decides_blocks_on_twenty_core_parts() -> None:
    large, small = platform("Ascend910_9372"), platform("Ascend910_9362")
    found = [
        predict_axis(QuantMatmulCall(1, 4096, 1024), "m", np.arange(1, 257), chip, CANN).columns["base_m"]
        for chip in (large, small)
    ]
    assert (found[0] != found[1]).any()


def random_problem(random: Random, count: int) -> Problem:
    def dimension(most: int) -> int:
        value, unit = random.randint(16, most), random.choice([1, 1, 16, 64, 512])
        return max(unit, value // unit * unit)

    cores, l2 = random.choice([(24, 201326592), (20, 201326592), (20, 176160768), (8, 201326592)])
    return Problem(
        np.array([random.randint(1, 300) for _ in range(count)]),
        np.array([dimension(9000) for _ in range(count)]),
        np.array([dimension(20000) for _ in range(count)]),
        random.random() < 0.3,
        random.random() < 0.4,
        cores,
        C910.l1_bytes,
        l2,
    )


def agree_with_oracle(seed: int, problems: int, each: int) -> None:
    random = Random(seed)
    for _ in range(problems):
        at = random_problem(random, each)
        found: Result = search(at)
        chip = oracle.Chip(at.cores, at.l1_bytes, at.l2_bytes)
        for i in range(each):
            shape = (int(at.m[i]), int(at.k[i]), int(at.n[i]), at.transpose_a, at.transpose_b)
            expected = oracle.best(*shape, chip)
            assert {name: int(getattr(found, name)[i]) for name in expected} == expected, (shape, chip)


def test_a_scalar_walk_over_candidates_finds_the_same_block() -> None:
    agree_with_oracle(seed=7, problems=8, each=10)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_scalar_walk_over_candidates_finds_the_same_block_for_thousands_of_shapes() -> None:
    agree_with_oracle(seed=8, problems=200, each=25)


def test_wide_nz_weights_take_the_small_m_block_where_the_search_found_another() -> None:
    random, changed = Random(6), 0
    for _ in range(40):
        m, k, n = random.randint(1, 256), random.randint(64, 160) * 64, random.randint(224, 600) * 32
        searched = oracle.best(m, k, n, False, False, oracle.Chip(24, C910.l1_bytes, C910.l2_bytes))
        block = {
            "base_m": 16 * searched["m_l0"],
            "base_n": 16 * searched["n_l0"],
            "base_k": 32 * searched["k_l0"],
        }
        found = predict(QuantMatmulCall(m, k, n), C910, CANN)
        expected = oracle_small_m.override(m, n, 24, C910.l1_bytes) or block
        parts = expected.pop("parts", None)
        if parts is None or {name: expected[name] for name in block} == block:
            expected = block
        else:
            changed += 1
            part = oracle_small_m.up(-(-n // parts), expected["base_n"])
            expected |= {"block_dim": -(-n // part), "depthA1": 2 * expected["stepKa"], "dbL0C": 1}
        assert {x: getattr(found, x, None) or found.fields.get(x) for x in expected} == expected, (m, k, n)
    assert changed > 15


def test_weight_format_plays_no_part_in_the_search() -> None:
    ms = np.arange(1, 257)
    found = [predict_axis(QuantMatmulCall(1, 4096, 512, f), "m", ms, C910, CANN) for f in (NZ, ND)]
    for name in ("block_dim", "base_m", "base_n", "base_k"):
        assert (found[0].columns[name] == found[1].columns[name]).all()
