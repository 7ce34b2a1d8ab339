"""GroupedMatmul: block dim, workspace, ratio, hints, and the work a group list makes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.predict import oracle_grouped_matmul as oracle
from tilewatch.tasks.predict.calls import ND, NZ, FinalizeRoutingCall, GroupedMatmulCall, SwigluQuantCall
from tilewatch.tasks.predict.environment import cann_version, platform
from tilewatch.tasks.predict.errors import PredictError
from tilewatch.tasks.predict.predict import predict

C910 = platform("Ascend910_9391")
CANN = cann_version("9.1.0")
W13 = GroupedMatmulCall(9216, 4096, 4096, 16)


@pytest.mark.parametrize(
    ("m", "base_m", "single_n", "cores", "workspace"),
    [
        (1, 16, 1024, 16, 17825792),
        (6, 16, 1024, 24, 18350080),
        (512, 128, 1024, 24, 29360128),
        (513, 128, 0, 24, 29360128),
        (9216, 128, 0, 24, 29360128),
    ],
)
def test_allocated_rows_set_block_cores_and_workspace(
    m: int, base_m: int, single_n: int, cores: int, workspace: int
) -> None:
    found = predict(replace(W13, m=m), C910, CANN)
    assert (found.base_m, found.single_n, found.block_dim, found.workspace_bytes) == (
        base_m, single_n, cores, workspace
    )  # fmt: skip


def test_the_group_list_changes_work_but_never_the_tiling() -> None:
    found = [predict(replace(W13, m_e=m_e), C910, CANN) for m_e in (26, 128, 129)]
    assert {(f.tiling_key, f.base_m, f.block_dim) for f in found} == {("34697052674", 128, 24)}
    assert [(f.units_per_expert, f.rounds) for f in found] == [(16, 11), (16, 11), (32, 22)]


@pytest.mark.parametrize(
    ("hint", "ratio", "base_m"), [(0, "1:1", 128), (127, "1:1", 128), (128, "2:1", 128), (129, "2:1", 256)]
)
def test_a_hint_of_128_doubles_the_vector_cores_and_129_the_block(hint: int, ratio: str, base_m: int) -> None:
    found = predict(replace(W13, tuning_config=hint), C910, CANN)
    assert (found.aiv_aic_ratio, found.base_m) == (ratio, base_m)


def test_between_1024_and_2048_of_k_no_hint_doubles_the_vector_cores() -> None:
    assert (
        predict(GroupedMatmulCall(2048, 1536, 4096, 16, tuning_config=128), C910, CANN).aiv_aic_ratio == "1:1"
    )


def test_the_fixed_axis_needs_every_condition() -> None:
    call = GroupedMatmulCall(
        345, 2048, 7168, 4, out_dtype="float16", scale_dtype="float32", group_list_type=0, tuning_config=256,
        workspace_allowance=-1, split_item=3,
    )  # fmt: skip
    assert predict(call, C910, CANN).tiling_key == "171798757890"
    assert predict(call, C910, CANN).workspace_bytes == 26669056
    for change in ({"groups": 16}, {"weight_format": ND}, {"group_list_type": 1}, {"workspace_allowance": 0}):
        assert predict(replace(call, **change), C910, CANN).branch != "fixed_axis"


def test_every_record_says_which_host_text_was_assumed() -> None:
    assert "host text V3" in (predict(W13, C910, CANN).unknown_reason or "")
    assert "host text V1" in (predict(W13, C910, cann_version("8.5.0")).unknown_reason or "")


def test_a_scalar_reading_of_the_rules_gives_the_same() -> None:
    random = Random(3)
    for _ in range(1500):
        m = random.choice([random.randint(1, 600), random.randint(1, 20000)])
        k = random.choice([1024, 2048, 4096, 7168, 7680, random.randint(1, 300) * 32])
        n = random.choice([2048, 4096, 7168, random.randint(1, 300) * 32])
        hint = random.choice([0, 0, random.randint(0, min(m, 600))])
        call = GroupedMatmulCall(
            m, k, n, random.choice([1, 2, 4, 8, 16, 32]), random.choice([NZ, NZ, ND]),
            transpose_w=random.random() < 0.2, out_dtype=random.choice(["bfloat16", "float16", "int32"]),
            bias=random.random() < 0.2, per_token_scale=random.random() < 0.8,
            group_list_type=random.choice([0, 1, 2]), tuning_config=hint,
        )  # fmt: skip
        code, cores = random.choice(["V2", "V3"]), random.choice([24, 20])
        chip = replace(C910, cube_cores=cores, vector_cores=2 * cores)
        found = predict(call, chip, replace(CANN, grouped_matmul_code=code))
        expected = oracle.tiling(
            oracle.Call(
                m, k, n, call.groups, call.weight_format == NZ, hint, call.transpose_w, call.out_dtype,
                call.bias, call.per_token_scale, call.group_list_type, cores, chip.l1_bytes, code,
            )
        )  # fmt: skip
        if found.branch == "pre_tiling" and m == 576:
            continue
        columns = {name: getattr(found, name) for name in expected if hasattr(found, name)}
        columns["tiling_key"] = int(found.tiling_key or -1)
        assert {name: columns.get(name, found.fields.get(name)) for name in expected} == expected, call


def test_rounds_are_the_longest_queue_when_blocks_are_dealt_one_by_one() -> None:
    random = Random(4)
    for _ in range(200):
        counts = tuple(random.choice([0, random.randint(1, 400)]) for _ in range(16))
        call = replace(W13, weight_format=random.choice([NZ, ND]), group_list=counts)
        call = replace(call, tuning_config=random.choice([0, 0, 100, 130, 300]))
        found = predict(call, C910, CANN)
        base_m, columns = found.base_m or 0, found.single_n or found.base_n or 0
        assert found.rounds == oracle.rounds(list(counts), base_m, 4096, columns, 24)
        assert found.units_per_expert == -(-max(counts) // base_m) * -(-4096 // columns)


def test_a_group_list_must_fit_the_experts_and_the_allocated_rows() -> None:
    with pytest.raises(PredictError, match="group_list: .*one count an expert"):
        predict(replace(W13, group_list=(1, 2)), C910, CANN)
    with pytest.raises(PredictError, match="m: 9216: fewer allocated rows than group_list holds"):
        predict(replace(W13, group_list=(600,) * 16), C910, CANN)


def test_swiglu_quant_takes_its_workspace_in_turns_beyond_two_halves_of_64_mebibytes() -> None:
    most = 2 * (64 * 1024 * 1024 // 8 // 4096)
    whole, split = (predict(SwigluQuantCall(m, 2048, 4096, 16), C910, CANN) for m in (most, most + 1))
    assert (whole.tiling_key, split.tiling_key, whole.block_dim) == ("0", "1", 24)
    assert whole.workspace_bytes == split.workspace_bytes == (16 + 64) * 1024 * 1024
    with pytest.raises(PredictError, match="n: 10241: GroupedMatmulSwigluQuant takes at most 10240 columns"):
        predict(SwigluQuantCall(16, 2048, 10241, 16), C910, CANN)


@pytest.mark.parametrize(
    ("call", "key", "base"),
    [
        (FinalizeRoutingCall(1024, 2048, 7168, 16), "10000000000000000001", (128, 256)),
        (FinalizeRoutingCall(16 * 128, 2048, 7168, 16), "10000000000000000001", (128, 256)),
        (FinalizeRoutingCall(16 * 129, 2048, 7168, 16), "10000000000000000001", (256, 128)),
        (FinalizeRoutingCall(16 * 129, 2048, 4096, 16), "10000000000000000001", (128, 256)),
        (FinalizeRoutingCall(9, 2048, 7680, 4, 256, "float32", "int32"), "10000000000000000011", (256, 128)),
        (FinalizeRoutingCall(9, 2048, 7680, 4, 257, "bfloat16"), "10000000000000000101", (128, 256)),
    ],
)  # fmt: skip
def test_finalize_routing_keeps_its_key_of_twenty_digits(
    call: FinalizeRoutingCall, key: str, base: tuple[int, int]
) -> None:
    found = predict(call, C910, CANN)
    assert (found.tiling_key, (found.base_m, found.base_n), found.block_dim) == (key, base, None)
