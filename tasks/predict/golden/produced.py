"""Golden rows the host code or its restatement produced: M sweeps, their segments, derived grouped matmul."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewatch.tasks.predict.calls import (
    ND,
    NZ,
    DynamicQuantCall,
    GroupedMatmulCall,
    OperatorCall,
    QuantMatmulCall,
)
from tilewatch.tasks.predict.environment import CannVersion, Platform, cann_version, platform
from tilewatch.tasks.predict.golden.case import Case, Value, expected_values
from tilewatch.tasks.predict.golden.file import Row

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
GE_DTYPES = {
    "BF16": "bfloat16", "FLOAT16": "float16", "FLOAT": "float32", "FLOAT32": "float32",
    "INT8": "int8", "INT32": "int32", "INT64": "int64", "UINT64": "uint64",
}  # fmt: skip
NEW_WORDS = frozenset({"l2CacheDisable", "reserved"})
# Values about the row itself, or that repeat another value of it.
ABOUT_THE_ROW = frozenset({
    "tiling_data_layout", "base", "tiling_key_if_v8_5_0", "core_limited_basic_rule_ge_9_1",
    "opt_only_because_of_KCNetDecode", "branch", "success", "reason",
})  # fmt: skip
BRANCHES = {
    "generic_db_bf16": "generic_double_buffer",
    "generic_db_fp16": "generic_double_buffer",
    "generic_bf16": "generic",
    "generic_fp16": "generic",
}
GROUPED_VERIFIED = frozenset({"tiling_key", "block_dim", "workspace_bytes"})
SEGMENT_COLUMNS = {
    "block_dim": "block_dim", "tiling_key": "tiling_key", "baseM": "base_m", "baseN": "base_n",
    "baseK": "base_k", "mTailTile": "mTailTile", "nTailTile": "nTailTile", "depthA1": "depthA1",
    "depthB1": "depthB1", "dbL0C": "dbL0C", "path": "path",
}  # fmt: skip
CHIPS = {"Ascend910_93": "Ascend910_9391", "Ascend950": "Ascend950DT_9581"}


def produced(line: int, row: Row) -> Iterator[Case]:
    """Cases of a row of an M sweep: one for every CANN version the row stands for."""
    chip = chip_of(row)
    expected = expected_values(row, "predicted.", ABOUT_THE_ROW)
    if row["op"] == "DynamicQuant":
        branch = row.get("predicted.tiling_data.branch")
        if branch is not None:
            expected["branch"] = BRANCHES.get(branch, str(branch))
        call: OperatorCall = DynamicQuantCall(
            row["M"], row["K"], x_dtype=DTYPES[row["x_dtype"]], smooth=row["smooth"]
        )
    else:
        call = _quant_matmul(row, row["weight_format"], row["transpose_x2"])
        base = row.get("predicted.base")
        if base is not None:
            expected["base"] = base if isinstance(base, str) else "x".join(map(str, base))
        decode = row.get("predicted.opt_only_because_of_KCNetDecode")
        if decode is not None:
            expected["decode_only"] = decode
    for version in _versions(row):
        wanted = expected
        if version.name != "9.2.0-beta.2":
            wanted = {name: value for name, value in expected.items() if name not in NEW_WORDS}
        yield Case(line, call, (call.m,), chip, version, wanted)
    older = row.get("predicted.tiling_key_if_v8_5_0")
    if older is not None:
        yield Case(line, call, (call.m,), chip, cann_version("8.5.0"), {"tiling_key": older})


def segment(line: int, row: Row) -> Iterator[Case]:
    """Cases of a run of M with one result."""
    dynamic = row["op"] == "DynamicQuant"
    chip = platform(CHIPS[row["soc"]])
    cores = row["vector_cores"] // 2 if dynamic else row["cores"]
    chip = replace(chip, name=row["soc"], cube_cores=cores, vector_cores=2 * cores)
    expected: dict[str, Value] = {
        name: row[column] for column, name in SEGMENT_COLUMNS.items() if row.get(column) is not None
    }
    if dynamic:
        call: OperatorCall = DynamicQuantCall(row["M_from"], row["K"])
    else:
        chip = replace(chip, l2_bytes=row["l2_bytes"])
        call = _quant_matmul({**row, "M": row["M_from"]}, row["weight"], bool(row["transpose_x2"]))
        steps = ("kAL1", "kBL1") if row["path"] == "tensorapi" else ("stepKa", "stepKb")
        for name, column in zip(steps, ("stepKa_or_kAL1", "stepKb_or_kBL1"), strict=True):
            expected[name] = row[column]
    for version in _segment_versions(str(row["cann"])):
        yield Case(line, call, tuple(range(row["M_from"], row["M_to"] + 1)), chip, version, expected)


def derived_grouped(line: int, row: Row) -> Iterator[Case]:
    """The case of a grouped matmul row that a restatement of the host text gave."""
    hint = row["inputs.tuning"] or [0]
    call = GroupedMatmulCall(
        row["inputs.M"],
        row["inputs.K"],
        row["inputs.N"],
        row["inputs.E"],
        NZ if row["inputs.nz"] else ND,
        transpose_w=bool(row.get("inputs.transW")),
        out_dtype=GE_DTYPES[row["inputs.y"]],
        scale_dtype=GE_DTYPES[row["inputs.scale"]],
        bias=bool(row.get("inputs.bias")),
        group_list_type=row["inputs.glt"],
        tuning_config=hint[0],
        workspace_allowance=hint[2] if len(hint) > 2 else 0,
    )
    cores = row["inputs.aic"]
    chip = replace(platform("Ascend910_9391"), cube_cores=cores, vector_cores=2 * cores)
    version = replace(cann_version("9.1.0"), grouped_matmul_code=row["code_version"])
    expected = expected_values(row, "expect.", ABOUT_THE_ROW)
    refused = not row["expect.success"]
    yield Case(line, call, (call.m,), chip, version, expected, refused, GROUPED_VERIFIED)


def chip_of(row: Row) -> Platform:
    """The platform of an M sweep row: a SoC of its architecture with the row's own sizes."""
    names = {
        "cube_core_cnt": "cube_cores", "vector_core_cnt": "vector_cores", "ub_size": "ub_bytes",
        "l1_size": "l1_bytes", "l0a": "l0a_bytes", "l0b": "l0b_bytes", "l0c": "l0c_bytes", "l2": "l2_bytes",
    }  # fmt: skip
    own = {ours: row[f"platform.{theirs}"] for theirs, ours in names.items() if row.get(f"platform.{theirs}")}
    return replace(platform(CHIPS[row["soc"]]), name=row["soc"], **own)


def _quant_matmul(row: Row, weight_format: str, transposed: bool) -> QuantMatmulCall:
    return QuantMatmulCall(
        row["M"], row["K"], row["N"], NZ if weight_format == "NZ" else ND, transpose_w=transposed
    )


def _versions(row: Row) -> list[CannVersion]:
    source, runtime = str(row["cann_source"]), str(row.get("runtime") or "")
    if source.startswith("v8.5.0"):
        return [cann_version("8.5.0")]
    newest = cann_version("9.2.0-beta.2")
    if "no MIX_BASIC_API" in runtime:
        return [newest.without_tensor_api(), cann_version("9.1.0"), cann_version("8.5.0")]
    found = [newest]
    if "v9.1.0" in source or runtime == "any":
        found.append(cann_version("9.1.0"))
    both = "v9.0.0" in source and ("20 or 24" not in source or row["platform.cube_core_cnt"] in (20, 24))
    return [*found, cann_version("9.0.0")] if both else found


def _segment_versions(text: str) -> list[CannVersion]:
    if text in ("master", ">=9.2 with asc-devkit>=9.1.0"):
        return [cann_version("9.2.0-beta.2")]
    if text == "v8.5.0":
        return [cann_version("8.5.0")]
    if text.startswith("8.5.0.."):
        return [
            cann_version("8.5.0"),
            cann_version("9.1.0"),
            cann_version("9.2.0-beta.2").without_tensor_api(),
        ]
    if text.startswith(">=9.0"):
        return [cann_version("9.0.0"), cann_version("9.1.0"), cann_version("9.2.0-beta.2")]
    return [cann_version("9.1.0"), cann_version("9.2.0-beta.2")]
