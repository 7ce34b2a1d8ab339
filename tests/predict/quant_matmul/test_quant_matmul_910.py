"""QuantMatmul on the 910: template, block search, decode rule, and what is unknown."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from tests.predict import oracle_block_search as oracle
from tests.predict import oracle_small_m
from tilewatch.tasks.predict.calls import ND, NZ, QuantMatmulCall
from tilewatch.tasks.predict.environment import cann_version, platform
from tilewatch.tasks.predict.predict import predict, predict_axis
from tilewatch.tasks.predict.quant_matmul.dav_2201.problem import Problem, Result
from tilewatch.tasks.predict.quant_matmul.dav_2201.search import search

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


def test_above_256_rows_the_basic_template_is_taken_unless_a_side_held_whole_in_l1_pays() -> None:
    assert predict(QuantMatmulCall(257, 4096, 2048), C910, CANN).branch == "basic"
    assert predict(QuantMatmulCall(257, 4096, 1024), C910, CANN).branch == "tbe", "both sides are small"
    assert predict(QuantMatmulCall(512, 512, 4096), C910, CANN).branch == "tbe", "shallow and within L2"
    assert predict(QuantMatmulCall(300, 2048, 3_072), C910, CANN).branch == "basic", "one load of 256 KiB"
    assert predict(QuantMatmulCall(300, 2048, 10_240), C910, CANN).branch == "tbe", "three loads more"
    assert predict(QuantMatmulCall(300, 8192, 10_240), C910, CANN).branch == "basic", "1 MiB is not held"
    ragged = QuantMatmulCall(300, 2080, 6016, ND)
    assert predict(ragged, C910, CANN).branch == "tbe", "K is no multiple of 128"


def test_every_record_says_that_tuning_banks_can_override_it() -> None:
    assert "tuning bank" in (predict(QuantMatmulCall(16, 4096, 1024), C910, CANN).unknown_reason or "")


def test_a_floating_point_bias_takes_its_share_of_the_unified_buffer() -> None:
    found = {
        bias: predict(QuantMatmulCall(32, 6912, 11264, bias_dtype=bias), C910, CANN).fields["ubCalcM"]
        for bias in ("int32", "bfloat16", "float32")
    }
    assert found == {"int32": 15, "bfloat16": 14, "float32": 14}


def test_beyond_fifty_mebibytes_a_core_gets_fewer_columns() -> None:
    found = predict(QuantMatmulCall(256, 1536, 65536, ND, transpose_w=True), C910, CANN)
    assert (found.branch, found.tiling_key, found.fields["realSingleCoreN"]) == ("tbe", "17", 5472)
    assert (found.fields["singleCoreM"], found.fields["singleCoreN"]) == (128, 2816)


def test_the_cut_to_fifty_mebibytes_agrees_with_a_search_by_hand() -> None:
    """Rows halved in steps of 16 and columns taken away base block by base block, one core at a time."""
    limit = 50 * 1024 * 1024
    rng = np.random.default_rng(7)
    cut = 0
    for _ in range(100):
        m, n = int(rng.integers(1, 257)), 256 * int(rng.integers(64, 1024))
        call = QuantMatmulCall(m, 512, n, ND, transpose_w=True)
        record = predict(call, C910, cann_version("8.5.0"))
        found, base_m, base_n = record.fields, record.base_m or 0, record.base_n or 0
        rows, columns = found["realSingleCoreM"], found["realSingleCoreN"]
        if m <= base_m and -(-columns // base_n) * base_n * base_m * 4 * 24 < limit:
            continue  # the optimised template, one base block
        if rows > base_m and columns > base_n:
            if -(-rows // base_m) <= -(-columns // base_n):
                rows = base_m
            else:
                columns = base_n
        rows, columns = max(rows, base_m), max(columns, base_n)
        share = limit // (record.used_core_num or 0) // 4
        if rows * columns > share:
            cut += 1
            rows = max(-(-rows // 16) // -(-rows * columns // share) * 16, base_m)
            parts = -(-rows * columns // share)
            columns = math.ceil(math.ceil(columns / base_n) / parts) * base_n
            while rows * columns > share and columns > base_n:
                columns -= base_n
            assert (found["singleCoreM"], found["singleCoreN"]) == (rows, columns), (m, n)
    assert cut > 5


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
