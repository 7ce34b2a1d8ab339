"""Golden rows that CANN's own unit tests assert: which are W8A8 calls we predict, and what they expect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tilewatch.tasks.predict.calls import (
    ND,
    NZ,
    DynamicQuantCall,
    FinalizeRoutingCall,
    GroupedMatmulCall,
    OperatorCall,
    QuantMatmulCall,
    SwigluQuantCall,
)
from tilewatch.tasks.predict.environment import DAV_2201, DAV_3510, Platform, cann_version, platform
from tilewatch.tasks.predict.golden.case import Case, Skipped, expected_values
from tilewatch.tasks.predict.golden.file import Row
from tilewatch.tasks.predict.golden.produced import GE_DTYPES

CHIP_OF_ARCH = {DAV_2201: "Ascend910_9391", DAV_3510: "Ascend950DT_9581"}
HEAD = "9.2.0-beta.2"
LAYOUT_WORDS = frozenset(
    {
        "BatchNum",
        "mxTypePara",
        "note",
        "tiling_data_layout",
        "key_matches",
        "tiling_data_u64",
        "tiling_key_is_u64_string",
        "success",
    }
    | {f"{m}LayoutInfo{x}" for m in "ABC" for x in ("B", "S", "N", "G", "D", "S1", "S2")}
)


def dynamic_quant(line: int, row: Row) -> Iterator[Case | Skipped]:
    """A DynamicQuant unit test: the key it asserts, and what replaying the host code for it gave."""
    arch = row["core_num_params.npu_arch"]
    inputs = {item["name"]: item for item in row["inputs"]}
    x_dtype = inputs["x_shape"]["dtype"].removeprefix("DT_")
    shape = inputs["x_shape"]["shape"]
    if not row["valid"]:
        yield Skipped(line, "a call that CANN's checks reject")
        return
    if arch not in CHIP_OF_ARCH:
        yield Skipped(line, f"NpuArch {arch}")
        return
    if not prod(shape):
        yield Skipped(line, "an empty tensor")
        return
    group = inputs.get("group_shape")
    call = DynamicQuantCall(
        prod(shape[:-1]),
        shape[-1],
        x_dtype=GE_DTYPES[x_dtype],
        smooth="smooth_shape" in inputs,
        group_num=group["shape"][0] if group else 0,
    )
    cores = row["core_num_params.CORE_NUM"]
    chip = replace(_chip(arch, row["soc"]), vector_cores=cores, ub_bytes=row["core_num_params.ub_size"])
    expected = expected_values(row, "replay_on_x86.", LAYOUT_WORDS)
    # The replay shows what a stale object held where the branch writes nothing.
    expected = {name: value for name, value in expected.items() if value != 0 or name == "tiling_key"}
    if row.get("expected.tiling_key") is not None:
        expected["tiling_key"] = row["expected.tiling_key"]
    yield Case(line, call, (call.m,), chip, cann_version(HEAD), expected)


def quant_matmul(line: int, row: Row) -> Iterator[Case | Skipped]:
    """A QuantBatchMatmulV3 unit test: only int8 with per-channel and per-token scale and bfloat16 out."""
    if reason := _outside_w8a8(row):
        yield Skipped(line, reason)
        return
    bias = row.get("inputs.bias.dtype")
    call = QuantMatmulCall(
        row["M"],
        row["K"],
        row["N"],
        NZ if row["inputs.x2.format"] == "NZ" else ND,
        NZ if row["inputs.x1.format"] == "NZ" else ND,
        row["attrs.transpose_x1"],
        row["attrs.transpose_x2"],
        scale_dtype=GE_DTYPES[row["inputs.scale.dtype"]],
        bias_dtype=GE_DTYPES[bias] if bias else None,
    )
    names = {
        "cube_core_cnt": "cube_cores", "vector_core_cnt": "vector_cores", "ub": "ub_bytes", "l1": "l1_bytes",
        "l2": "l2_bytes", "l0a": "l0a_bytes", "l0b": "l0b_bytes", "l0c": "l0c_bytes",
    }  # fmt: skip
    own = {ours: row[f"core_num_params.{theirs}"] for theirs, ours in names.items()}
    chip = replace(_chip(row["core_num_params.npu_arch"], row["soc"]), **own)
    yield Case(
        line, call, (call.m,), chip, cann_version(HEAD), expected_values(row, "expected.", LAYOUT_WORDS)
    )


def _outside_w8a8(row: Row) -> str | None:
    if not row["relevant_w8a8_pertoken_bf16"]:
        return "not W8A8 with per-token scale and bfloat16 output"
    if not row["valid"]:
        return "a call that CANN's checks reject"
    if row["tiling_stub"]:
        return "the test injects the closed library's answer"
    return f"{row['batch'][0]} weight matrices" if max(row["batch"]) > 1 else None


def grouped_matmul(line: int, row: Row) -> Iterator[Case | Skipped]:
    """A GroupedMatmul unit test with int8 on both sides on NpuArch 2201, in each host text it stands for.

    Of a call that the host fails only the failure is asserted.
    """
    if row["inputs.x.dtype"] != "INT8" or row["inputs.weight.dtype"] != "INT8":
        yield Skipped(line, "not INT8 on both sides")
        return
    if row["op"] != "GroupedMatmul":
        yield _fused(line, row)
        return
    call = _grouped_call(row)
    cores = row["platform.aic"]
    chip = replace(
        _chip(DAV_2201, "Ascend910B"), cube_cores=cores, vector_cores=row["platform.aiv"],
        ub_bytes=row["platform.ub"], l1_bytes=row["platform.l1"],
    )  # fmt: skip
    refused = not row["expect.success"]
    expected = {} if refused else expected_values(row, "expect.", LAYOUT_WORDS)
    if expected.get("block_dim") == "full(aicNum)":
        expected["block_dim"] = cores
    for code in ("V1",) if row["code_version"].startswith("V1") else ("V2", "V3"):
        version = replace(cann_version("9.1.0"), grouped_matmul_code=code)
        own = {name: value for name, value in expected.items() if name != "block_dim" or code == "V1"}
        yield Case(line, call, (call.m,), chip, version, own, refused)


def _fused(line: int, row: Row) -> Case:
    """A unit test of a fused relative: host tiling sees the shape in which a tensor is stored."""
    m, k = row["inputs.x.storage_shape"]
    groups = row["inputs.weight.storage_shape"][0]
    if row["op"] == "GroupedMatmulSwigluQuant":
        call: OperatorCall = SwigluQuantCall(m, k, row["inputs.weight.storage_shape"][-1], groups)
    else:
        call = FinalizeRoutingCall(
            m, k, row["inputs.scale.shape"][-1], groups, row["attrs.tuning_config"],
            GE_DTYPES[row["inputs.scale.dtype"]], GE_DTYPES[row["inputs.row_index.dtype"]],
        )  # fmt: skip
    chip = replace(_chip(DAV_2201, "Ascend910B"), cube_cores=row["platform.aic"])
    return Case(line, call, (m,), chip, cann_version(HEAD), expected_values(row, "expect.", LAYOUT_WORDS))


def _grouped_call(row: Row) -> GroupedMatmulCall:
    several = len(row.get("inputs.x.shapes") or [1]) > 1
    x = (row.get("inputs.x.shapes") or [row.get("inputs.x.shape")])[0]
    weight = (row.get("inputs.weight.shapes") or [row.get("inputs.weight.shape")])[0]
    outputs = row.get("inputs.y.shapes")
    hint = row["attrs.tuning_config"] or [0]
    bias = row.get("inputs.bias.shape") or (row.get("inputs.bias.shapes") or [[]])[0]
    scale = row.get("inputs.per_token_scale.shape")
    return GroupedMatmulCall(
        x[0],
        x[-1],
        outputs[0][-1] if outputs else _columns(weight, x[-1]),
        len(row["inputs.weight.shapes"]) if several else weight[0],
        NZ if row["inputs.weight.format"] == "FRACTAL_NZ" else ND,
        transpose_x=row["attrs.transpose_x"],
        transpose_w=row["attrs.transpose_weight"],
        out_dtype=GE_DTYPES[row["inputs.y.dtype"]],
        scale_dtype=GE_DTYPES[row["inputs.scale.dtype"]],
        per_token_scale=bool(scale),
        bias=bool(prod(bias)) and bool(bias) and not several,
        split_item=row["attrs.split_item"],
        group_type=row["attrs.group_type"],
        group_list_type=row["attrs.group_list_type"],
        act_type=row["attrs.act_type"],
        tuning_config=hint[0],
        workspace_allowance=hint[2] if len(hint) > 2 else 0,
        single_tensors=not several,
    )


def _columns(weight: list[int], k: int) -> int:
    """N of a weight [E, K, N]; some tests write it that way even where they say transposed."""
    return weight[-1] if weight[-2] == k else weight[-2]


def _chip(arch: str, soc: str) -> Platform:
    return replace(platform(CHIP_OF_ARCH[arch]), name=soc)
